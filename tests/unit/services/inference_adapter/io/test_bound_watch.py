"""A worker whose container is nearly full drains instead of being killed."""

from __future__ import annotations

from services.inference_adapter.io.bound_watch import BoundWatch
from streamway.memory import Memory

MACHINE = Memory(99, 100)


def look(watch: BoundWatch, times: int, now: float = 1000.0) -> bool:
    for _ in range(times):
        watch.look(now)
    return watch.near.is_set()


async def test_three_looks_at_a_full_group_are_enough() -> None:
    watch = BoundWatch(0.97, 0.0, lambda: [Memory(98, 100), MACHINE])
    assert not look(watch, 2)
    assert look(watch, 1)


async def test_a_full_machine_is_nobodys_own() -> None:
    assert not look(BoundWatch(0.97, 0.0, lambda: [MACHINE]), 9)


async def test_what_was_full_at_once_is_not_started_again_and_again() -> None:
    watch = BoundWatch(0.97, 0.0, lambda: [Memory(98, 100), MACHINE])
    assert not look(watch, 9, now=60.0)
    assert look(watch, 1, now=121.0)


async def test_room_in_between_begins_the_count_anew() -> None:
    used = [98, 98, 90, 98, 98]
    watch = BoundWatch(0.97, 0.0, lambda: [Memory(used.pop(0), 100), MACHINE])
    assert not look(watch, 5)


async def test_a_mark_of_one_is_never() -> None:
    assert not look(BoundWatch(1.0, 0.0, lambda: [Memory(100, 100), MACHINE]), 9)
