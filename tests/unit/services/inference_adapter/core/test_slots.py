"""Sessions find their own KV, and no call waits for a slot while another is free."""

from __future__ import annotations

from services.inference_adapter.core.slots import Slots


def test_a_session_comes_back_to_its_slot() -> None:
    slots = Slots(2)
    first = slots.take("a")
    assert (first.slot, first.why) == (0, "free")
    slots.leave(first)
    other = slots.take("b")
    assert (other.slot, other.why) == (1, "free")
    again = slots.take("a")
    assert (again.slot, again.why) == (0, "home")


def test_a_slot_that_works_is_never_named() -> None:
    slots = Slots(2)
    slots.take("a")
    second = slots.take("a")
    assert (second.slot, second.why) == (None, "busy")


def test_nothing_is_named_while_nobody_knows_where_a_call_runs() -> None:
    slots = Slots(2)
    slots.leave(slots.take("a"))
    somewhere = slots.take("", choices=2)
    assert somewhere.slot is None
    assert slots.take("a").why == "busy"
    slots.leave(somewhere)
    assert slots.idle == frozenset(), "the busy one is somewhere too"


def test_when_every_slot_is_somebodys_the_engine_chooses() -> None:
    slots = Slots(1)
    slots.leave(slots.take("a"))
    other = slots.take("b")
    assert (other.slot, other.why) == (None, "open")
    slots.observe(frozenset({0}))
    slots.leave(other)
    assert slots.homes == {"b": 0}
    assert slots.take("a").why == "open"


def test_what_could_be_meant_by_two_is_not_learned() -> None:
    slots = Slots(3)
    for name in "abc":
        slots.leave(slots.take(name))
    slots.take("d")
    slots.take("e")
    slots.observe(frozenset({0, 1}))
    assert slots.homes == {"a": 0, "b": 1, "c": 2}


def test_saved_kv_is_read_into_the_slot_that_was_left_longest() -> None:
    slots = Slots(2)
    for name in "ab":
        slots.leave(slots.take(name))
    slots.leave(slots.take("a"))
    seat = slots.take("c", saved=True)
    assert (seat.slot, seat.why) == (1, "restored")
    assert slots.homes == {"a": 0, "c": 1}


def test_saved_kv_is_left_where_every_slot_works() -> None:
    slots = Slots(1)
    slots.take("a")
    assert slots.take("c", saved=True).why == "open"


def test_an_engine_that_lost_its_kv_begins_anew() -> None:
    slots = Slots(1)
    slots.leave(slots.take("a"))
    slots.forget()
    assert not slots.knows("a")
    assert slots.take("b").why == "free"


def test_the_books_are_as_long_as_there_are_slots() -> None:
    slots = Slots(2)
    for number in range(100):
        seat = slots.take(f"s{number}", saved=True)
        slots.leave(seat)
    assert len(slots.homes) == 2
