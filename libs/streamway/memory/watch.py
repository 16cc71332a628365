"""Looks at the memory again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Gauge

from streamway.memory.reading import Memory, read_memory
from streamway.memory.watermark import Watermark

_log = structlog.get_logger("memory")
LOOK_S: Final = 5.0


class MemoryWatch:
    """`pressed` says whether bulk work is to wait."""

    def __init__(
        self, mark: float, registry: CollectorRegistry | None = None, read: Callable[[], Memory] = read_memory
    ) -> None:
        self._watermark = Watermark(mark)
        self._read = read
        self._used: Gauge | None = None
        if registry is not None:
            self._used = Gauge(
                "streamway_memory_used_ratio",
                "Memory in use against the limit of the cgroup, or of the machine.",
                registry=registry,
            )
        self.look()

    @property
    def pressed(self) -> bool:
        """There is too little left for bulk work."""
        return self._watermark.pressed

    def look(self) -> None:
        """Looks once."""
        memory = self._read()
        if self._used is not None:
            self._used.set(memory.share)
        if self._watermark.look(memory.used, memory.limit):
            _log.warning("memory_pressure", pressed=self.pressed, used_bytes=memory.used, limit_bytes=memory.limit)

    async def run(self) -> None:
        """Looks each five seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
