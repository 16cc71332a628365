"""Looks at the memory again and again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Gauge

from streamway.memory.reading import Memory, read_memory
from streamway.memory.trend import Trend
from streamway.memory.watermark import Watermark

_log = structlog.get_logger("memory")
LOOK_S: Final = 5.0
# Whoever hears that the memory will be full can still do something about it.
SOON_S: Final = 600.0


class MemoryWatch:
    """`pressed` says whether bulk work is to wait, `soon` whether the memory will be full within ten minutes if it goes on like
    this."""

    def __init__(
        self,
        mark: float,
        registry: CollectorRegistry | None = None,
        read: Callable[[], Memory] = read_memory,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watermark = Watermark(mark)
        self._trend = Trend()
        self._read = read
        self._now = now
        self._followers: list[Callable[[], None]] = []
        self.soon = False
        # In use of the limit as of the last look, 0 … 1; of all levels the fullest.
        self.share = 0.0
        self._used: Gauge | None = None
        self._left: Gauge | None = None
        if registry is not None:
            self._used = Gauge(
                "streamway_memory_used_ratio",
                "Memory in use against the limit of the cgroup, or of the machine.",
                registry=registry,
            )
            self._left = Gauge(
                "streamway_memory_full_in_seconds",
                "Until the memory is full, by a line through the last 15 minutes; infinite where it does not rise.",
                registry=registry,
            )
        self.look()

    @property
    def pressed(self) -> bool:
        """There is too little left for bulk work."""
        return self._watermark.pressed

    def follow(self, follower: Callable[[], None]) -> None:
        """Calls it after each look from now on."""
        self._followers.append(follower)

    def look(self) -> None:
        """Looks once."""
        memory = self._read()
        self.share = memory.share
        if self._watermark.look(memory.used, memory.limit):
            _log.warning("memory_pressure", pressed=self.pressed, used_bytes=memory.used, limit_bytes=memory.limit)
        self._trend.add(self._now(), memory.used)
        left_s = self._trend.seconds_to(memory.limit)
        soon = left_s is not None and left_s < SOON_S
        if soon and not self.soon:
            _log.warning("memory_full_soon", seconds=left_s, used_bytes=memory.used, limit_bytes=memory.limit)
        self.soon = soon
        if self._used is not None and self._left is not None:
            self._used.set(memory.share)
            self._left.set(math.inf if left_s is None else left_s)
        for follower in self._followers:
            follower()

    async def run(self) -> None:
        """Looks each five seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
