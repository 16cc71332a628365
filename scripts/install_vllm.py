"""Installs a real vLLM that needs no GPU, and builds a tiny model for it, both into one folder: for `make test-vllm`.

python scripts/install_vllm.py FOLDER       3.1 GB, some minutes; when all is there it says nothing

FOLDER/env      a virtual environment with vLLM; ours stays as it is
FOLDER/model    a Llama of 2.4 million parameters that means nothing, with its tokenizer and chat template
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
REQUIREMENTS: Final = ROOT / "requirements" / "vllm.txt"
BUILDER: Final = ROOT / "scripts" / "build_tiny_model.py"
# What vLLM was built against. Not pinned by hash: each platform has its own build under this version.
TORCH: Final = "torch==2.13.0+cpu"
VERSION: Final = "0.32.0+cpu"
_ROOM_BYTES: Final = 4_500_000_000


def installed(folder: Path) -> bool:
    """Everything of this version of the recipe is there."""
    stamp = folder / "stamp"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _recipe()


def command(folder: Path) -> Path:
    """The program `vllm`."""
    return folder / "env" / "bin" / "vllm"


def model(folder: Path) -> Path:
    """The tiny model."""
    return folder / "model"


def install(folder: Path) -> None:
    """Installs what is missing. Raises SystemExit with what to do."""
    if installed(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not command(folder).exists() and shutil.disk_usage(folder).free < _ROOM_BYTES:
        raise SystemExit(
            f"vLLM needs 4.5 GB while it is installed, and {folder} has less: name another folder by VLLM=…"
        )
    if not (folder / "env" / "bin" / "python").exists():
        _say(f"a virtual environment in {folder / 'env'}")
        venv.create(folder / "env", with_pip=True)
    _say(f"{TORCH} (200 MB)")
    # Without what it depends on: all of that is pinned in our list.
    _pip(
        folder,
        "--no-deps",
        TORCH,
        hint="; it is on PyTorch's own index for processors: name that by PIP_EXTRA_INDEX_URL",
    )
    _say(f"vLLM and what it needs, from {REQUIREMENTS.name}")
    _pip(folder, "--no-deps", "--require-hashes", "-r", str(REQUIREMENTS))
    _name_it(folder)
    _say(f"the model in {model(folder)}")
    shutil.rmtree(model(folder), ignore_errors=True)
    _run(folder, str(BUILDER), str(model(folder)))
    (folder / "stamp").write_text(_recipe(), encoding="utf-8")
    _say("done")


def _recipe() -> str:
    made_of = b"".join(path.read_bytes() for path in (Path(__file__), REQUIREMENTS, BUILDER))
    return hashlib.sha256(made_of).hexdigest()


def _name_it(folder: Path) -> None:
    """The command asks its own version under the name `vllm`, which this build does not have."""
    for site in (folder / "env" / "lib").glob("python*/site-packages"):
        named = site / f"vllm-{VERSION}.dist-info"
        named.mkdir(exist_ok=True)
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n", encoding="utf-8")


def _pip(folder: Path, *arguments: str, hint: str = "") -> None:
    _run(folder, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments, hint=hint)


def _run(folder: Path, *arguments: str, hint: str = "") -> None:
    if subprocess.run([str(folder / "env" / "bin" / "python"), *arguments], check=False).returncode:
        raise SystemExit(f"{' '.join(arguments)} failed, see above{hint}")


_began: Final = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _began:4.0f} s  {what}", flush=True)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: install_vllm.py FOLDER")
    install(Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    main()
