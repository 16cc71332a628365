"""Where the limits of this process's cgroup are, of either version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal


def folders(root: Path, controller: str) -> Iterator[tuple[Literal[1, 2], Path]]:
    """Every level above this process that may limit it, the own one first, with the version of its files. Never raises."""
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        version: Literal[1, 2]
        if controllers == "":
            version, base = 2, root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            version, base = 1, root / "sys/fs/cgroup" / controller
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield version, base.joinpath(*parts[:depth])


def text_of(path: Path) -> str:
    """What a file of the kernel says; empty where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
