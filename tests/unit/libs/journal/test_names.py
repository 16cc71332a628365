"""Lines, cursors and entries: what is read is what was written, and nothing else is accepted."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamway.errors import Malformed
from streamway.journal import Cursor, Entry, Kind, Line, decode_events, encode_events, rebuild
from streamway.journal.entries import Begin, attempt_of, on_line
from streamway.v1 import common_pb2

FIRST, SECOND = 1 << 20 | 7, 2 << 20 | 3
LINE = Line(((0, 1), (FIRST, 2), (SECOND, 10)))


@st.composite
def lines(draw: st.DrawFn) -> Line:
    epochs = sorted(draw(st.sets(st.integers(1, 2**53), max_size=5)))
    starts = sorted(draw(st.sets(st.integers(2, 2**40), min_size=len(epochs), max_size=len(epochs))))
    return Line(((0, 1), *zip(epochs, starts, strict=True)))


@given(lines())
def test_a_line_survives_its_text(line: Line) -> None:
    assert Line.parse(str(line)) == line


@pytest.mark.parametrize(
    "text", ["", "0", "0:0", "0:1,", "0:1,5:1", "5:2,4:3", "0:1,5:٣", "0:01", "a:1", "0:1 ,5:2", "-1:1"]
)
def test_what_is_not_a_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        Line.parse(text)


@given(lines(), st.integers(1, 2**41))
def test_each_position_has_one_owner_and_the_line_holds_it(line: Line, position: int) -> None:
    holders = [epoch for epoch, _ in line.segments if line.holds(epoch, position)]
    assert holders == [line.owner(position)]


@given(lines(), lines())
def test_lines_part_at_the_last_position_both_hold_alike(one: Line, other: Line) -> None:
    at = one.parting(other)
    assert at == other.parting(one)
    for position in {1, 2, at, *(start for _, start in (*one.segments, *other.segments))}:
        if 0 < position <= at:
            assert one.owner(position) == other.owner(position)
    if at < 2**64 - 1:
        assert one.owner(at + 1) != other.owner(at + 1)


def test_a_line_is_extended_only_upwards() -> None:
    assert str(LINE.extend(3 << 20, 11)) == f"{LINE},{3 << 20}:11"
    with pytest.raises(ValueError, match="continue"):
        LINE.extend(FIRST, 20)
    with pytest.raises(ValueError, match="continue"):
        LINE.extend(3 << 20, 10)


@given(st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_a_cursor_survives_its_text(epoch: int, position: int) -> None:
    cursor = Cursor(epoch, position)
    assert Cursor.parse(str(cursor)) == cursor


@given(st.text())
def test_a_text_is_a_cursor_or_malformed(text: str) -> None:
    with contextlib.suppress(Malformed):
        assert str(Cursor.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["7", "1-", "-1", "01-1", "1-01", "1-2-3", "5-0", "1_0-2", "١-٢", f"1-{2**64}", " 1-2", "1-2\n"]
)
def test_what_is_not_a_cursor_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        Cursor.parse(text)


def _entry(epoch: int, first: int, last: int, *words: str, kind: Kind = Kind.TOKENS) -> Entry:
    events = [
        common_pb2.Event(position=first + index, token=common_pb2.Token(text=word, units=1))
        for index, word in enumerate(words)
    ]
    return Entry(epoch, first, last, kind, encode_events(events))


def test_an_entry_survives_the_store() -> None:
    begin = Begin("ab12", "adapter-0", LINE, "adapter-1")
    for entry in (_entry(FIRST, 3, 4, "a", "b"), Entry(SECOND, 10, 10, Kind.BEGIN, b"", begin)):
        fields = [part if isinstance(part, bytes) else str(part).encode() for part in entry.fields()]
        assert Entry.parse(str(entry.id).encode(), fields) == entry


def test_an_entry_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ValueError, match="payload"):
        Entry.parse(b"1-2", [b"kind", b"tokens", b"first", b"2"])
    with pytest.raises(ValueError, match="nonsense"):
        Entry.parse(b"1-2", [b"kind", b"nonsense", b"first", b"2", b"payload", b""])


def test_payloads_joined_are_the_events_joined() -> None:
    one, two = _entry(FIRST, 3, 3, "a"), _entry(FIRST, 4, 4, "b")
    joined = Entry(FIRST, 3, 4, Kind.TOKENS, one.payload + two.payload)
    assert [event.token.text for event in decode_events(joined)] == ["a", "b"]


def test_the_events_of_an_entry_have_its_epoch_and_a_begin_its_position() -> None:
    started = encode_events([common_pb2.Event(started=common_pb2.Started(worker="w0", queued_ms=5))])
    first = decode_events(Entry(FIRST, 2, 2, Kind.BEGIN, started, Begin("r", "w0", LINE)))
    assert (first[0].epoch, first[0].position, first[0].started.queued_ms) == (FIRST, 2, 5)
    again = decode_events(Entry(SECOND, 10, 10, Kind.BEGIN, started, Begin("r", "w1", LINE, "w0")))
    assert (again[0].taken_over.worker, again[0].taken_over.from_worker) == ("w1", "w0")


def test_a_begin_after_calls_that_made_nothing_is_told_as_started_again() -> None:
    started = encode_events([common_pb2.Event(started=common_pb2.Started(worker="w1", queued_ms=5))])
    silent = Line(((0, 1), (FIRST, 2), (SECOND, 3)))
    assert (silent.begins_anew, LINE.begins_anew) == (True, False)
    (again,) = decode_events(Entry(SECOND, 3, 3, Kind.BEGIN, started, Begin("r", "w1", silent, "w0")))
    assert (again.started.worker, again.position, again.epoch) == ("w1", 3, SECOND)


def test_entries_beyond_where_the_next_epoch_starts_are_not_the_answer() -> None:
    mine, beyond, next_ = _entry(FIRST, 3, 9), _entry(FIRST, 10, 12), _entry(SECOND, 11, 12)
    assert on_line([mine, beyond, next_], LINE) == [mine, next_]


def test_the_answer_is_rebuilt_by_choice() -> None:
    entry = _entry(FIRST, 3, 4, "Hel", "lo")
    end = common_pb2.Event(position=5, token=common_pb2.Token(units=1, choice=1, raw_delta=b"{}"))
    end.token.choice_finished.finish_reason = "tool_calls"
    choices = rebuild([entry, Entry(FIRST, 5, 5, Kind.TOKENS, encode_events([end]))])
    assert (choices[0].text, choices[0].units, choices[0].plain) == ("Hello", 2, True)
    assert (choices[1].finish_reason, choices[1].plain) == ("tool_calls", False)


def test_an_epoch_says_its_attempt() -> None:
    assert (attempt_of(0), attempt_of(FIRST), attempt_of(SECOND)) == (0, 1, 2)
