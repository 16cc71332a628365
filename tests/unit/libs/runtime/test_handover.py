"""What threads put in arrives on the loop, all of it, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from streamway.runtime.handover import Handover


async def test_what_has_come_while_the_loop_was_busy_is_one_wake_up(monkeypatch) -> None:
    loop, got = asyncio.get_running_loop(), []
    wake_ups = 0
    wake = loop.call_soon_threadsafe

    def counted(callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:
        nonlocal wake_ups
        wake_ups += 1
        return wake(callback, *arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    handover = Handover[int](loop, got.append)

    def put() -> None:
        for number in range(100):
            assert handover.put(number)

    thread = threading.Thread(target=put)
    thread.start()
    thread.join()  # the loop stands still meanwhile
    assert not got
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert got == list(range(100))
    assert wake_ups == 1
    handover.put(100)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (got[-1], wake_ups) == (100, 2)


async def test_nothing_is_lost_between_threads_and_each_keeps_its_order() -> None:
    got: list[tuple[int, int]] = []
    over = asyncio.Event()

    def deliver(item: tuple[int, int]) -> None:
        got.append(item)
        if len(got) == 4000:
            over.set()

    handover = Handover[tuple[int, int]](asyncio.get_running_loop(), deliver)
    threads = [
        threading.Thread(target=lambda me=me: [handover.put((me, number)) for number in range(1000)]) for me in range(4)
    ]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(over.wait(), 30)
    for thread in threads:
        thread.join()
    for me in range(4):
        assert [number for who, number in got if who == me] == list(range(1000))


def test_a_closed_loop_is_told() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert not Handover[int](loop, lambda _: None).put(1)
