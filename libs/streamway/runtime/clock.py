"""Time as a dependency, so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a component gets its time from."""

    def monotonic(self) -> float:
        """Seconds that never go back; for durations and deadlines inside a process."""
        ...

    def unix(self) -> float:
        """Seconds since the Unix epoch; for what other processes read."""
        ...


class SystemClock:
    """The machine's own clocks, without a call of ours between: the token path reads them several times a token."""

    monotonic = staticmethod(time.monotonic)
    unix = staticmethod(time.time)
