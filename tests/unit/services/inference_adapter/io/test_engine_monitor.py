"""When a worker takes no prefill."""

from __future__ import annotations

from typing import Any, cast

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


class FakeClock(SystemClock):
    """Monotonic time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Mute:
    """An engine that answers to its health check; whether it makes tokens is another matter."""

    def __init__(self) -> None:
        self.speaks = False
        self.tokens = 0
        self.asked = 0

    async def load(self) -> EngineLoad:
        return EngineLoad(1, 0)

    async def token(self) -> bool:
        self.asked += 1
        return self.speaks


def monitor_of(engine: Mute, clock: FakeClock, told: list[bool]) -> EngineMonitor:
    kv, backend = KVPressure(0.92, 0.87, 0), cast("Any", engine)
    return EngineMonitor(
        backend, kv, clock, 1, 1, told.append, lambda _: None, lambda: None, engine.token, lambda: engine.tokens
    )


async def test_an_engine_that_only_answers_is_not_healthy_until_a_token_came() -> None:
    engine, told = Mute(), list[bool]()
    monitor = monitor_of(engine, FakeClock(), told)
    await monitor.check()
    assert (monitor.healthy, engine.asked) == (True, 0), "nobody doubts it"
    monitor.doubt()
    await monitor.check()
    assert (monitor.healthy, told) == (False, [False])
    engine.speaks = True
    await monitor.check()
    assert (monitor.healthy, told, engine.asked) == (True, [False, True], 2)
    await monitor.check()
    assert engine.asked == 2


async def test_a_token_of_an_answer_that_runs_is_enough() -> None:
    engine, told = Mute(), list[bool]()
    monitor = monitor_of(engine, FakeClock(), told)
    monitor.doubt()
    engine.tokens = 1
    await monitor.check()
    assert (monitor.healthy, engine.asked, told) == (True, 0, [])


async def test_an_engine_that_stays_mute_is_given_up() -> None:
    engine, clock = Mute(), FakeClock()
    monitor = monitor_of(engine, clock, [])
    monitor.doubt()
    await monitor.check()
    assert not monitor.hopeless.is_set()
    clock.now += 61
    await monitor.check()
    assert monitor.hopeless.is_set()
