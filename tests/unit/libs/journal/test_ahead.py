"""What a reader holds that the store does not have yet."""

from __future__ import annotations

from streamway.journal import Ahead, Cursor, Kind, decode_events
from streamway.v1 import common_pb2

EPOCH = 1 << 20 | 7


def given(position: int, first: int = 0, entry: int = 0, text: str = "x", epoch: int = EPOCH) -> common_pb2.Event:
    return common_pb2.Event(
        subscription=3,
        epoch=epoch,
        position=position,
        first_position=first,
        token=common_pb2.Token(text=text),
        not_durable=True,
        entry_position=entry,
    )


def ids(ahead: Ahead, tail: Cursor) -> list[tuple[int, int]]:
    return [(entry.first, entry.last) for entry in ahead.entries(tail)]


def test_entries_are_cut_where_their_worker_cut_them() -> None:
    ahead = Ahead()
    for event in (given(5, first=3), given(6, entry=7), given(7), given(8, entry=9)):
        ahead.add(event)
    entries = ahead.entries(Cursor(EPOCH, 2))
    assert [(entry.first, entry.last) for entry in entries] == [(3, 5), (6, 7)], "of the last entry a part is missing"
    assert entries[0].kind is Kind.TOKENS
    events = decode_events(entries[1])
    assert [event.position for event in events] == [6, 7]
    assert not any(event.not_durable or event.subscription or event.entry_position for event in events)


def test_only_what_follows_the_tail_of_the_same_call_without_a_hole_is_written() -> None:
    ahead = Ahead()
    for event in (given(3), given(4), given(6)):
        ahead.add(event)
    assert ids(ahead, Cursor(EPOCH, 3)) == [(4, 4)]
    assert ids(ahead, Cursor(EPOCH, 1)) == []
    assert ids(ahead, Cursor(EPOCH + 1, 3)) == []
    assert ids(ahead, Cursor(EPOCH, 6)) == []


def test_an_end_is_written_as_one() -> None:
    ahead = Ahead()
    ahead.add(common_pb2.Event(epoch=EPOCH, position=9, finished=common_pb2.Finished(), not_durable=True))
    assert [entry.kind for entry in ahead.entries(Cursor(EPOCH, 8))] == [Kind.END]


def test_it_is_bounded_and_the_oldest_go_first() -> None:
    ahead = Ahead(most_bytes=400)
    for position in range(3, 13):
        ahead.add(given(position, text="y" * 80))
    assert ids(ahead, Cursor(EPOCH, 2)) == []
    kept = ids(ahead, Cursor(EPOCH, 9))
    assert kept
    assert kept[-1] == (12, 12)
