"""What the answers to one look at a channel mean."""

from __future__ import annotations

from typing import Any

import hiredis

from streamway.journal import START, Continues, Cursor, Entry, Kind, Line, NotRecovered
from streamway.journal.entries import Begin
from streamway.journal.merge import Behind, Diverged
from streamway.journal.packing import pack_look
from streamway.journal.reading import Read, judged

FIRST, SECOND = 1 << 20 | 7, 2 << 20 | 9
ONE, TWO = Line(((0, 1), (FIRST, 2))), Line(((0, 1), (FIRST, 2), (SECOND, 5)))
CHANNEL = [
    Entry(0, 1, 1, Kind.ACCEPTED, b""),
    Entry(FIRST, 2, 2, Kind.BEGIN, b"", Begin("r1", "a", ONE)),
    Entry(FIRST, 3, 3, Kind.TOKENS, b"x"),
    Entry(FIRST, 4, 4, Kind.TOKENS, b"y"),
    Entry(FIRST, 5, 5, Kind.TOKENS, b"gone"),
]
TAKEN_OVER = [
    *CHANNEL,
    Entry(SECOND, 5, 5, Kind.BEGIN, b"", Begin("r2", "b", TWO, "a")),
    Entry(SECOND, 6, 6, Kind.TOKENS, b"z"),
    Entry(SECOND, 7, 7, Kind.END, b""),
]


def _row(entry: Entry) -> list[Any]:
    fields = [each if isinstance(each, bytes) else str(each).encode() for each in entry.fields()]
    return [str(entry.id).encode(), fields]


def look(channel: list[Entry], cursor: Cursor, limit: int = 100, appended: tuple[Entry, ...] = ()) -> Read | None:
    """As a store would answer; `appended` is there only when the page is read."""
    replies: list[Any] = []
    for number, (command, _, low, high, _, count) in enumerate(asked("g", cursor, limit)):
        rows = [*channel, *appended] if number == 2 else channel
        if command == b"XREVRANGE":
            rows = rows[::-1]
        elif low.isdigit():
            rows = [entry for entry in rows if entry.epoch == int(low)]
        elif low.startswith(b"("):
            rows = [entry for entry in rows if entry.id > Cursor.parse(low[1:].decode())]
        assert high in (b"+", b"-", low)
        replies.append([_row(entry) for entry in rows[: int(count)]])
    return judged(replies, cursor, None)


def asked(generation: str, cursor: Cursor, limit: int) -> list[list[bytes]]:
    """The commands of a look, word by word."""
    packed, count = pack_look(generation, cursor, limit)
    reader = hiredis.Reader()
    reader.feed(packed)
    commands = [reader.gets() for _ in range(count)]
    assert reader.gets() is False
    return commands


def test_a_look_is_whole_commands_in_this_order() -> None:
    key, page = b"sw:resp:{g}", [b"+", b"COUNT", b"500"]
    tail, oldest = [b"XREVRANGE", key, b"+", b"-", b"COUNT", b"1"], [b"XRANGE", key, b"-", b"+", b"COUNT", b"2"]
    assert asked("g", START, 500) == [tail, oldest, [b"XRANGE", key, b"-", *page]]
    assert asked("g", Cursor(FIRST, 12), 500) == [tail, oldest, [b"XRANGE", key, b"(%d-12" % FIRST, *page]]
    epoch = str(SECOND).encode()
    begin = [b"XRANGE", key, epoch, epoch, b"COUNT", b"1"]
    assert asked("g", Cursor(SECOND, 9), 500) == [tail, oldest, [b"XRANGE", key, b"(%b-9" % epoch, *page], begin]


def test_there_is_no_channel() -> None:
    assert look([], Cursor(FIRST, 3)) == Read(NotRecovered(None), [], START)


def test_what_follows_the_cursor_with_who_wrote_last() -> None:
    read = look(CHANNEL, Cursor(FIRST, 3))
    assert read is not None
    assert (read.outcome, read.worker, read.oldest, read.newest) == (Continues(ONE), "a", 1, Kind.TOKENS)
    assert ([entry.last for entry in read.entries], read.tail, read.more) == ([4, 5], Cursor(FIRST, 5), False)


def test_a_page_that_stops_short_says_so() -> None:
    read = look(CHANNEL, Cursor(FIRST, 3), limit=1)
    assert read is not None
    assert ([entry.last for entry in read.entries], read.tail, read.more) == ([4], Cursor(FIRST, 4), True)


def test_what_came_after_the_tail_was_read_is_left_for_the_next_look() -> None:
    read = look(CHANNEL, Cursor(FIRST, 4), appended=tuple(TAKEN_OVER[5:]))
    assert read is not None
    assert ([entry.last for entry in read.entries], read.tail, read.outcome) == ([5], Cursor(FIRST, 5), Continues(ONE))
    nothing = look(CHANNEL, Cursor(FIRST, 5), appended=tuple(TAKEN_OVER[5:]))
    assert nothing is not None
    assert (nothing.entries, nothing.tail, nothing.more) == ([], Cursor(FIRST, 5), False)


def test_the_begin_of_a_later_call_is_asked_for_unless_page_or_cursor_lead_to_it() -> None:
    assert look(TAKEN_OVER, Cursor(FIRST, 3), limit=1) is None
    read = look(TAKEN_OVER, Cursor(FIRST, 3))
    assert read is not None
    assert [entry.id for entry in read.entries] == [(FIRST, 4), (SECOND, 5), (SECOND, 6), (SECOND, 7)]
    assert (read.worker, read.newest) == ("b", Kind.END)
    read = look(TAKEN_OVER, Cursor(SECOND, 6))
    assert read is not None
    assert ([entry.last for entry in read.entries], read.outcome) == ([7], Continues(TWO))


def test_a_cursor_on_a_text_that_is_gone_and_one_beyond_the_tail() -> None:
    read = look(TAKEN_OVER, Cursor(FIRST, 5))
    assert read is not None
    assert read.outcome == Diverged(Cursor(FIRST, 4), TWO)
    read = look(CHANNEL, Cursor(FIRST, 9))
    assert read is not None
    assert read.outcome == Behind(Cursor(FIRST, 5), ended=False)


def test_a_trimmed_channel_tells_its_oldest_position() -> None:
    trimmed = CHANNEL[3:]
    read = look(trimmed, Cursor(FIRST, 2))
    assert read is None or read.outcome == NotRecovered(4)
    read = look([entry._replace(epoch=SECOND) for entry in trimmed], Cursor(SECOND, 2))
    assert read is not None
    assert (read.outcome, read.oldest) == (NotRecovered(4), 4)
