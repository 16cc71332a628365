"""Looks at how much memory is left while answers run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from streamway.memory import Floor, Memory, read_levels
from streamway.runtime.start import StartError

_log = structlog.get_logger("memory")
_LOOK_S: Final = 1.0


class FloorWatch:
    """Reads each second, when it is asked. `read` gives every level that limits this process."""

    def __init__(self, floor: Floor, read: Callable[[], list[Memory]] = read_levels) -> None:
        self._floor = floor
        self._read = read
        self._looked_at = float("-inf")
        self._short = False

    def check(self) -> None:
        """At the start: tells what holds here. Raises StartError for a floor that no answer could ever pass."""
        levels = [memory for memory in self._read() if memory.limit]
        if not levels:
            return
        tightest = min(levels, key=lambda memory: memory.limit)
        floor = self._floor.of(tightest)
        if floor >= tightest.limit:
            raise StartError(
                f"truncate_below_bytes is {self._floor.least_bytes}, and there are {tightest.limit} bytes of memory: every "
                "answer would be cut; set less, or 0 for never"
            )
        if self._floor.short(levels):
            _log.warning("answers_will_be_truncated", floor_bytes=floor, available_bytes=tightest.available)
        else:
            _log.info("memory_floor", floor_bytes=floor, limit_bytes=tightest.limit)

    def short(self, now: float) -> bool:
        """Whether answers that run must be cut, as of the last second."""
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            short = self._floor.short(self._read())
            if short != self._short:
                self._short = short
                _log.warning("memory_short", short=short)
        return self._short
