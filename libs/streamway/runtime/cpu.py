"""How much of its CPU a process uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

from streamway.runtime import cgroups


def cpu_quota(root: Path = Path("/")) -> float:
    """Cores that this process may use: of the tightest level of its cgroup, at most those it may run on. Never raises."""
    limits = [_limit(version, folder) for version, folder in cgroups.folders(root, "cpu")]
    return min([float(len(os.sched_getaffinity(0))), *(limit for limit in limits if limit is not None)])


class CpuMeter:
    """Measures from one look to the next. To be made and asked in one thread, that of the event loop.

    A loop is full at one core however many the process may use, so its thread counts against that, and the whole process
    against `quota` cores; what is nearer to its limit is told.
    """

    def __init__(self, quota: float | None = None) -> None:
        self._quota = quota if quota is not None else cpu_quota()
        self._seen = self._read()

    def share(self) -> float:
        """Since the last look, 0 … 1; a little more where a quota lets it go over for a moment."""
        before, self._seen = self._seen, self._read()
        now, process, thread = (new - old for new, old in zip(self._seen, before, strict=True))
        return max(process / self._quota, thread) / now if now > 0 else 0.0

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Seconds: of the monotonic clock, of CPU in this process, of CPU in this thread."""
        return time.monotonic(), time.process_time(), time.thread_time()


def _limit(version: int, folder: Path) -> float | None:
    """In cores; None: this level sets none."""
    if version == 2:
        words = cgroups.text_of(folder / "cpu.max").split()
    else:
        words = [cgroups.text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        return None
    return int(words[0]) / int(words[1])
