"""Pins `requirements/*.txt` from pyproject.toml, with the hash of every file and without index addresses.

`dev.txt` comes first; the others take its versions, so that what is tested is what runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_RUNTIME: Final = ("embedded", "llamacpp", "semantic")
_SERVICES: Final = ("edge", "router", "inference_adapter", "cache", "supervisor")
_HEADERS: Final = {
    "dev.txt": "# Everything that building, testing and measuring needs. Made by `make lock`; do not edit.\n",
    "runtime.txt": "# What a running mesh needs, llama.cpp and the embedded Valkey included. Made by `make lock`; do not edit.\n",
    "build.txt": "# What building the package needs. Made by `make lock`; do not edit.\n",
    "langchain.txt": "# LangChain's client of OpenAI's protocol, for `make test-langchain`. Made by `make lock`; do not edit.\n",
    **{f"{name}.txt": f"# What the image of {name} holds. Made by `make lock`; do not edit.\n" for name in _SERVICES},
}


def lock(name: str, *arguments: str) -> None:
    """Compiles one file; versions in it stay unless `arguments` ask for newer ones."""
    target = ROOT / "requirements" / name
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate"]
    subprocess.run([*command, *arguments, "--output-file", str(target)], check=True, cwd=ROOT)
    target.write_text(_HEADERS[name] + target.read_text(encoding="utf-8"), encoding="utf-8")


def main() -> None:
    upgrade = sys.argv[1:]
    runtime = [f"--extra={extra}" for extra in _RUNTIME]
    lock("dev.txt", "pyproject.toml", *runtime, "--extra=tune", "--extra=dev", *upgrade)
    lock("runtime.txt", "pyproject.toml", *runtime, "--constraints=requirements/dev.txt", *upgrade)
    lock("build.txt", "requirements/build.in", "--constraints=requirements/dev.txt", *upgrade)
    lock("langchain.txt", "requirements/langchain.in", "--constraints=requirements/dev.txt", *upgrade)
    for name in _SERVICES:
        lock(f"{name}.txt", f"--group={name}", "--constraints=requirements/dev.txt", *upgrade)


if __name__ == "__main__":
    main()
