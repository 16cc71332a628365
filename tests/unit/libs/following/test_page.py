"""Entries of a channel as events."""

from __future__ import annotations

from streamway.following.page import before, events_of
from streamway.journal import Cursor, Entry, Kind, Line, encode_events
from streamway.journal.entries import Begin
from streamway.v1 import common_pb2

ONE, TWO = 1 << 20, 2 << 20
LINE = Line(((0, 1), (ONE, 2), (TWO, 9)))


def test_an_event_that_covers_its_entry_gets_its_range() -> None:
    token = common_pb2.Event(token=common_pb2.Token(text="abc", units=3))
    (event,) = events_of(Entry(ONE, 3, 5, Kind.TOKENS, encode_events([token])))
    assert (event.epoch, event.first_position, event.position) == (ONE, 3, 5)
    (alone,) = events_of(Entry(ONE, 3, 3, Kind.TOKENS, encode_events([token])))
    assert (alone.first_position, alone.position) == (0, 3)


def test_events_that_say_their_positions_keep_them() -> None:
    first = common_pb2.Event(position=3, token=common_pb2.Token(text="a"))
    second = common_pb2.Event(position=5, first_position=4, token=common_pb2.Token(text="bc"))
    events = events_of(Entry(ONE, 3, 5, Kind.TOKENS, encode_events([first, second])))
    assert [(event.first_position, event.position) for event in events] == [(0, 3), (4, 5)]


def test_a_begin_tells_its_line() -> None:
    payload = encode_events([common_pb2.Event(started=common_pb2.Started(worker="w1"))])
    (first,) = events_of(Entry(ONE, 2, 2, Kind.BEGIN, payload, Begin("r", "w1", LINE)))
    assert first.started.line == str(LINE)
    (later,) = events_of(Entry(TWO, 9, 9, Kind.BEGIN, payload, Begin("r", "w1", LINE, "w0")))
    assert (later.taken_over.line, later.taken_over.from_worker) == (str(LINE), "w0")


def test_the_cursor_before_a_position_is_of_whoever_wrote_it() -> None:
    assert before(1, LINE) == Cursor(0, 0)
    assert before(2, LINE) == Cursor(0, 1)
    assert before(9, LINE) == Cursor(ONE, 8)
    assert before(10, LINE) == Cursor(TWO, 9)
