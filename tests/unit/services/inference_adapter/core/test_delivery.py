"""Log before deliver."""

from __future__ import annotations

from services.inference_adapter.core.delivery import Gate
from streamway.v1 import common_pb2


def event(position: int) -> tuple[int, bytes]:
    return position, common_pb2.Event(position=position).SerializeToString()


def marked(events: object) -> list[tuple[int, bool]]:
    """Position of each event, and whether it says that it is not durable."""
    assert isinstance(events, list | tuple)
    return [(position, common_pb2.Event.FromString(raw).not_durable) for position, raw in events]


def test_nothing_goes_out_before_it_is_confirmed() -> None:
    gate = Gate(strict=False)
    assert not gate.put([event(3)])
    assert not gate.put([event(5), event(6)])
    assert gate.waiting
    assert not gate.confirmed(2)
    assert marked(gate.confirmed(3)) == [(3, False)]
    assert marked(gate.confirmed(6)) == [(5, False), (6, False)]
    assert not gate.waiting


def test_several_flushes_may_be_confirmed_at_once() -> None:
    gate = Gate(strict=True)
    for position in range(3, 7):
        gate.put([event(position)])
    assert marked(gate.confirmed(5)) == [(3, False), (4, False), (5, False)]
    assert not gate.confirmed(5)


def test_a_strict_one_waits_for_a_silent_store() -> None:
    gate = Gate(strict=True)
    gate.put([event(3)])
    assert not gate.unanswered()
    assert gate.waiting
    assert marked(gate.confirmed(3)) == [(3, False)]


def test_a_relaxed_one_goes_on_without_it_and_says_so_until_it_has_caught_up() -> None:
    gate = Gate(strict=False)
    gate.put([event(3)])
    gate.put([event(4)])
    assert marked(gate.unanswered()) == [(3, True), (4, True)]
    assert gate.loose
    assert marked(gate.put([event(5)])) == [(5, True)]
    # What was delivered already does not go out again.
    assert not gate.confirmed(4)
    assert marked(gate.put([event(6)])) == [(6, True)]
    assert not gate.confirmed(6)
    assert not gate.loose
    assert not gate.put([event(7)])
    assert marked(gate.confirmed(7)) == [(7, False)]


def test_silence_with_nothing_to_tell_changes_nothing() -> None:
    gate = Gate(strict=False)
    assert not gate.unanswered()
    assert not gate.loose


def test_what_goes_out_without_the_store_says_where_its_entry_ends() -> None:
    def entries(events: object) -> list[tuple[int, int]]:
        assert isinstance(events, list)
        return [(position, common_pb2.Event.FromString(raw).entry_position) for position, raw in events]

    gate = Gate(strict=False)
    gate.put([event(3), event(4)])
    gate.put([event(5)])
    gate.put([event(6), event(7), event(300)])
    gate.confirmed(4)
    assert entries(gate.unanswered()) == [(5, 0), (6, 300), (7, 300), (300, 0)]
    assert entries(gate.put([event(301), event(302)])) == [(301, 302), (302, 0)]
    assert entries(gate.put([event(303)])) == [(303, 0)]
