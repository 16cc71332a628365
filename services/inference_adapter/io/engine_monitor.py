"""Asks the engine how busy it is, and notices when it does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from services.inference_adapter.core.kv_pressure import KVPressure
from services.inference_adapter.interfaces import Backend, EngineLoad
from streamway.errors import StreamwayError
from streamway.runtime.clock import Clock

_log = structlog.get_logger("adapter")


class EngineMonitor:
    """Knows the engine's last load. `on_change` is told whether it answers, `on_kv_full` whether its KV cache is too full for
    another prefill, when that changes."""

    def __init__(
        self,
        backend: Backend,
        kv: KVPressure,
        clock: Clock,
        every_s: float,
        timeout_s: float,
        on_change: Callable[[bool], None],
        on_kv_full: Callable[[bool], None],
    ) -> None:
        self._backend = backend
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._kv = kv
        self._clock = clock
        self._on_kv_full = on_kv_full
        self.healthy = True
        self.load = EngineLoad(0, 0)

    @property
    def kv_full(self) -> bool:
        """The KV cache is too full for another prefill."""
        return self._kv.pressed

    async def run(self) -> None:
        """Asks until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(self._every_s)

    async def check(self) -> None:
        """Asks once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                self.load = await self._backend.load()
            healthy, problem = True, ""
        except (StreamwayError, OSError) as error:
            healthy, problem = False, str(error) or type(error).__name__
        if healthy != self.healthy:
            self.healthy = healthy
            if healthy:
                _log.info("engine_answers_again")
            else:
                _log.warning("engine_does_not_answer", problem=problem)
            self._on_change(healthy)
        if healthy and self._kv.look(self.load.kv_used, self._clock.monotonic()):
            _log.warning("kv_pressure", pressed=self.kv_full, used=self.load.kv_used)
            self._on_kv_full(self.kv_full)
