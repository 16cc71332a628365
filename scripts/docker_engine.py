"""Whether there is a Docker engine to run on, found out before anything is asked of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence


class NoEngine(Exception):
    """There is no Docker engine to run on, or it cannot get what is built on. The message says what was missing, in one line."""


def engine() -> tuple[list[str], str]:
    """The command of Compose, and what engine answers. Raises NoEngine."""
    if shutil.which("docker") is None:
        raise NoEngine("there is no `docker` command")
    version = _said(["docker", "version", "--format", "{{.Server.Version}}"])
    if not version:
        raise NoEngine("no Docker engine answers `docker version`")
    for compose in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(compose[0]) is None:
            continue
        found = _said([*compose, "version", "--short"])
        if found and not found.startswith("1."):
            return compose, f"Docker {version}, Compose {found}"
    raise NoEngine(f"Docker {version} answers, and has no Compose 2 or newer (`docker compose version`)")


def _said(command: Sequence[str]) -> str:
    """What it prints; nothing when it fails or takes long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return "" if done.returncode else done.stdout.strip()
