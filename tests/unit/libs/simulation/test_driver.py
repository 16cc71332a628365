from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from streamway.simulation.driver import CATCH_UP_S, EngineDriver
from streamway.simulation.engine import Event, SimulatedEngine
from streamway.simulation.request import read
from streamway.simulation.sequence import Piece
from streamway.simulation.settings import SimulationSettings

RATE = 1000.0
BODY = b'{"messages":[{"role":"user","content":"p"}],"max_tokens":4000,"stream":true}'


def driver_of(deliver: Callable[[Event], None], delivered: Callable[[], None] = lambda: None) -> EngineDriver:
    settings = SimulationSettings(tokens_per_s=RATE)
    driver = EngineDriver(SimulatedEngine(settings), deliver, delivered)
    driver.submit(read(BODY, settings), "tag")
    return driver


async def test_an_engine_that_was_kept_from_its_work_does_not_make_it_up_in_one_step() -> None:
    steps, made = [], 0

    def count(event: Event) -> None:
        nonlocal made
        made += isinstance(event, Piece)

    driver = driver_of(count, lambda: steps.append(made))
    while made < 10:
        await asyncio.sleep(0.01)
    time.sleep(1.0)  # nothing runs, the engine neither
    before = len(steps)
    while len(steps) < before + 2:
        await asyncio.sleep(0.01)
    largest = max(new - old for old, new in itertools.pairwise(steps))
    # A second would be 1,000.
    assert CATCH_UP_S * RATE * 0.8 <= largest <= 500
    driver.close()


async def test_a_step_is_told_after_all_of_its_events() -> None:
    told: list[str] = []
    driver = driver_of(lambda event: told.append("event"), lambda: told.append("step"))
    while told.count("step") < 5:
        await asyncio.sleep(0.005)
    driver.close()
    assert told[-1] == "step"
    assert told[0] == "event"
