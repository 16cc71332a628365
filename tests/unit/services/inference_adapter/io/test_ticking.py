from __future__ import annotations

import asyncio
import time

from services.inference_adapter.io.ticking import RAREST_S, look_again_and_again


async def looks_within(seconds: float, cost_s: float) -> int:
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        until = time.thread_time() + cost_s
        while time.thread_time() < until:
            pass

    ticking = asyncio.create_task(look_again_and_again(look))
    await asyncio.sleep(seconds)
    ticking.cancel()
    return looks


async def test_a_look_that_costs_much_is_had_rarely_and_once_a_second_at_least() -> None:
    # Ten times a second this would be a fifth of a core.
    assert 2 <= await looks_within(2.9 * RAREST_S, cost_s=0.02) <= 4


async def test_a_look_that_costs_nothing_is_had_often() -> None:
    assert await looks_within(1.5, cost_s=0.0) >= 5
