"""How busy this process's loop is: the share of the time in which it has something to do.

Linux counts for each thread how long it ran and how long it was ready to run while others had the processors, both in nanoseconds
since the thread's start (`/proc/thread-self/schedstat`). Together that is what the loop wants: its CPU time alone would show a
loop that gets half of a processor, and wants all of it, as half idle. Where the kernel does not count, it is CPU time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")
# Between two looks. A look takes some 20 µs.
_LOOK_S: Final = 0.05
# Of a new look in the smoothed share: a burst of one look says little.
_WEIGHT: Final = 0.5


class Demand:
    """Looked at when it is asked for, by the thread whose loop it is about."""

    __slots__ = ("_at", "_clock", "_share", "_wanted", "_wanted_s")

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wanted_s: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self._wanted_s = wanted_s or _counted()
        self._at, self._wanted = clock(), self._wanted_s()
        self._share = 0.0

    @property
    def share(self) -> float:
        """0 … 1, of about the last tenth of a second; of all the time since the last question where that was longer ago."""
        now = self._clock()
        passed = now - self._at
        if passed >= _LOOK_S:
            wanted = self._wanted_s()
            seen = min(1.0, max(0.0, (wanted - self._wanted) / passed))
            self._share += (seen - self._share) * max(_WEIGHT, min(1.0, passed / (4 * _LOOK_S)))
            self._at, self._wanted = now, wanted
        return self._share


@functools.cache
def of_process() -> Demand:
    """The one of this process, for all who space their work by it; of the thread that asks first, which is the loop's."""
    return Demand()


def _counted() -> Callable[[], float]:
    try:
        _read()
    except (OSError, ValueError, IndexError):
        return time.thread_time
    return _read


def _read() -> float:
    ran, waited = _SCHEDSTAT.read_bytes().split()[:2]
    return (int(ran) + int(waited)) / 1e9
