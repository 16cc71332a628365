"""How many workers are asked for while memory is short."""

from __future__ import annotations

from services.router.core.wanted import Wanted
from services.router.core.worker import Worker


def workers(count: int, pressed: int = 0) -> list[Worker]:
    return [Worker(f"w{n}", "x:1", (), 4, memory_pressed=n < pressed) for n in range(count)]


def test_two_more_than_when_the_first_came_short_until_none_is() -> None:
    wanted = Wanted(most=0)
    assert wanted.look(workers(4)) == 4
    assert wanted.look(workers(4, pressed=1)) == 6
    # The new ones are there and the first is short still: no further ones.
    assert wanted.look(workers(6, pressed=1)) == 6
    assert wanted.look(workers(6)) == 6
    assert wanted.look(workers(6, pressed=2)) == 8


def test_never_more_than_nine_tenths_of_the_most_and_never_fewer_than_there_are() -> None:
    assert Wanted(most=10).look(workers(8, pressed=8)) == 9
    assert Wanted(most=10).look(workers(10, pressed=1)) == 10


def test_a_lease_says_it() -> None:
    fields = {"address": "x:1", "models": "[]", "slots": "1"}
    assert not Worker.parse("w", fields).memory_pressed
    assert Worker.parse("w", {**fields, "memory_pressed": "1"}).memory_pressed
