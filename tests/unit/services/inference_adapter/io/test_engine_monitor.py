"""When a worker takes no prefill."""

from __future__ import annotations

from typing import Any

import pytest

from services.inference_adapter.core.kv_pressure import KVPressure
from services.inference_adapter.interfaces import EngineLoad
from services.inference_adapter.io.engine_monitor import EngineMonitor
from streamway.runtime.clock import SystemClock


class Engine:
    def __init__(self, kv_used: float | None) -> None:
        self.kv_used = kv_used

    async def load(self) -> EngineLoad:
        return EngineLoad(0, 0, kv_used=self.kv_used)


@pytest.mark.parametrize(
    ("kv_used", "gpu_used", "full"),
    [(0.95, None, True), (0.5, 0.99, False), (None, 0.95, True), (None, 0.5, False), (None, None, False)],
)
async def test_an_engine_that_does_not_tell_is_judged_by_its_gpu(
    kv_used: float | None, gpu_used: float | None, full: bool
) -> None:
    told: list[bool] = []
    engine: Any = Engine(kv_used)
    kv = KVPressure(0.92, 0.87, 0)
    monitor = EngineMonitor(engine, kv, SystemClock(), 1, 1, lambda _: None, told.append, lambda: gpu_used)
    await monitor.check()
    assert monitor.kv_full is full
    assert told == ([True] if full else [])


async def test_sequences_that_were_put_aside_hold_prefill_up_once() -> None:
    loads = iter(
        [EngineLoad(0, 0, 0.5, 7), EngineLoad(0, 0, 0.5, 9), EngineLoad(0, 0, 0.5, 9), EngineLoad(0, 0, 0.5, 1)]
    )

    class Counting:
        async def load(self) -> EngineLoad:
            return next(loads)

    told: list[bool] = []
    engine: Any = Counting()
    monitor = EngineMonitor(engine, KVPressure(0.92, 0.87, 10), SystemClock(), 1, 1, lambda _: None, told.append)
    await monitor.check()
    assert not monitor.kv_full, "what was before the first look is none of ours"
    await monitor.check()
    assert monitor.kv_full
    await monitor.check()
    assert not monitor.kv_full
    await monitor.check()
    assert not monitor.kv_full, "an engine that was started anew counts from 0"
    assert told == [True, False]
