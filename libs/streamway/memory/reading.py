"""Reads used and limit: of the cgroup this process is in, whichever level is the fullest, else of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamway.runtime.cgroups import folders, text_of

# Version 1 says "no limit" as a number near the largest there is.
_NO_LIMIT = 1 << 60
# By version: what is used, the limit, and what of the used can be dropped.
_FILES: Final = {
    1: ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"),
    2: ("memory.current", "memory.max", "inactive_file"),
}


class Memory(NamedTuple):
    """Bytes. `limit` 0: unknown."""

    used: int
    limit: int

    @property
    def share(self) -> float:
        """0 … 1, and above where a limit was lowered."""
        return self.used / self.limit if self.limit else 0.0

    @property
    def available(self) -> int:
        """Bytes that are left; 0 where the limit is unknown."""
        return max(0, self.limit - self.used)


def read_memory(root: Path = Path("/")) -> Memory:
    """Of all levels the fullest. Never raises; unknown is Memory(0, 0)."""
    return max(read_levels(root), key=lambda memory: memory.share)


def read_levels(root: Path = Path("/")) -> list[Memory]:
    """What there is now, of each cgroup this process is in that has a limit, and of the machine. Pages of files that can be
    dropped do not count as used. Never raises; unknown is Memory(0, 0)."""
    machine = _machine(root / "proc/meminfo")
    groups = [group for group in _groups(root) if group.limit and (not machine.limit or group.limit < machine.limit)]
    return [*groups, machine]


def _machine(path: Path) -> Memory:
    fields: dict[str, int] = {}
    for line in text_of(path).splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdecimal():
            fields[name] = int(number[0]) * 1024
    total, available = fields.get("MemTotal", 0), fields.get("MemAvailable")
    return Memory(total - available, total) if available is not None else Memory(0, 0)


def _groups(root: Path) -> Iterator[Memory]:
    """Every level above this process, of either version."""
    for version, folder in folders(root, "memory"):
        yield _group(folder, *_FILES[version])


def _group(folder: Path, used: str, limit: str, droppable: str) -> Memory:
    current, most = text_of(folder / used).strip(), text_of(folder / limit).strip()
    if not current.isdecimal() or not most.isdecimal() or int(most) >= _NO_LIMIT:
        return Memory(0, 0)
    cached = 0
    for line in text_of(folder / "memory.stat").splitlines():
        name, _, number = line.partition(" ")
        if name == droppable and number.strip().isdecimal():
            cached = int(number)
    return Memory(max(0, int(current) - cached), int(most))
