"""Starts the mesh as containers: `make up`. What it needs first, then the images, then the containers until all are healthy.

The API key that the first start makes is the last thing it says: a build's output is long, and the key is kept nowhere.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts import images
from scripts.docker_engine import NoEngine, engine
from scripts.make_secrets import ROOT, make, shown

_EDGE_PORT: Final = "8080"
# Not started, and there for `docker compose run tools`, which cannot build it where Docker has no buildx.
_TOOLS: Final = ("--profile", "tools")


def up(compose: Sequence[str], folder: Path) -> None:
    """`compose` begins with the command and has its files, profiles and options. Raises SystemExit with what to do."""
    try:
        engine()
    except NoEngine as problem:
        raise SystemExit(f"nothing was started: {problem}. Without Docker: make run") from None
    key = make(folder)
    try:
        try:
            images.build([*compose, *_TOOLS])
        except subprocess.CalledProcessError as problem:
            raise SystemExit(images.failed(problem)) from None
        if subprocess.run([*compose, "up", "--detach", "--wait"], check=False).returncode:
            raise SystemExit(
                f"not all of it came up; what it says: {' '.join(compose)} logs SERVICE; end it: make down"
            )
        told = subprocess.run([*compose, "port", "edge", _EDGE_PORT], check=True, stdout=subprocess.PIPE, text=True)
        print(f"all healthy: http://{told.stdout.strip()}", flush=True)
    finally:
        if key is not None:
            print(shown(key, folder), flush=True)


if __name__ == "__main__":
    up(sys.argv[1:], ROOT / ".run")
