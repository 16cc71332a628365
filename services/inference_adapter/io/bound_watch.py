"""Notices that the worker's container is about to be killed for its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from streamway.memory import Memory, read_levels

_log = structlog.get_logger("memory")
_LOOKS: Final = 3
# A start reads a model and takes its KV. What is full again so soon is not made better by another start.
_LEAST_LIFE_S: Final = 120.0


class BoundWatch:
    """`near` is set when a cgroup's memory was `mark` full (0 … 1; 1: never) at three looks on end.

    The machine's does not count: who uses that is not known, and another start would change nothing. `born`: monotonic seconds.
    """

    def __init__(self, mark: float, born: float, read: Callable[[], list[Memory]] = read_levels) -> None:
        self._mark = mark
        self._born = born
        self._read = read
        self._seen = 0
        self.near = asyncio.Event()

    def look(self, now: float) -> None:
        """Looks once."""
        # The last level is the machine.
        shares = [level.share for level in self._read()[:-1]]
        full = self._mark < 1 and max(shares, default=0.0) >= self._mark
        self._seen = self._seen + 1 if full else 0
        if self._seen >= _LOOKS and now - self._born >= _LEAST_LIFE_S and not self.near.is_set():
            _log.error("memory_nearly_full", share=round(max(shares), 3), mark=self._mark)
            self.near.set()
