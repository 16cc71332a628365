"""What a reader drops, delivers, asks the channel for, and is told."""

from __future__ import annotations

import pytest

from streamway.journal import START, Behind, Continues, Cursor, Diverged, Kind, Line, Merger, NotRecovered, Verdict
from streamway.journal.merge import ChannelView, judge

A, B, C = 1 << 20 | 7, 2 << 20 | 3, 3 << 20 | 1
LINE_A = Line(((0, 1), (A, 2)))
LINE_B = LINE_A.extend(B, 10)


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [
        (3, 5, Verdict.DROP),
        (5, 5, Verdict.DROP),
        (6, 6, Verdict.DELIVER),
        (6, 9, Verdict.DELIVER),
        (7, 7, Verdict.GAP),
        (4, 7, Verdict.GAP),
    ],
)
def test_the_same_epoch_goes_by_position(first: int, last: int, verdict: Verdict) -> None:
    merger = Merger(Cursor(A, 5))
    assert merger.receive(A, first, last) is verdict
    assert merger.cursor == Cursor(A, last if verdict is Verdict.DELIVER else 5)


def test_a_lower_epoch_is_dropped() -> None:
    assert Merger(Cursor(B, 10)).receive(A, 11, 11) is Verdict.DROP


def test_a_higher_epoch_that_continues_the_text_is_delivered() -> None:
    merger = Merger(Cursor(A, 9))
    assert merger.receive(B, 10, 10, LINE_B) is Verdict.DELIVER
    assert merger.cursor == Cursor(B, 10)
    assert merger.line == LINE_B


def test_a_higher_epoch_that_starts_later_is_a_gap() -> None:
    assert Merger(Cursor(A, 7)).receive(B, 10, 10, LINE_B) is Verdict.GAP


def test_a_higher_epoch_whose_line_is_not_told_is_a_gap() -> None:
    assert Merger(Cursor(A, 9)).receive(B, 10, 10) is Verdict.GAP


def test_a_text_beyond_the_next_start_has_diverged_there() -> None:
    merger = Merger(Cursor(A, 12))
    diverged = merger.receive(B, 10, 10, LINE_B)
    assert diverged == Diverged(Cursor(A, 9), LINE_B)
    assert merger.cursor == Cursor(A, 12), "nothing moves before the reader was told"
    merger.restart(diverged)
    assert merger.receive(B, 10, 10, LINE_B) is Verdict.DELIVER


def test_a_text_of_a_call_that_is_not_on_the_line_has_diverged_where_the_lines_part() -> None:
    merger = Merger(Cursor(B, 15), LINE_B)
    other = LINE_A.extend(C, 6)
    assert merger.receive(C, 16, 16, other) == Diverged(Cursor(A, 5), other)


def test_without_its_line_a_reader_keeps_only_what_came_before_any_call() -> None:
    other = LINE_A.extend(C, 6)
    assert Merger(Cursor(B, 15)).receive(C, 16, 16, other) == Diverged(Cursor(0, 1), other)


def test_a_reader_with_nothing_takes_the_first_event() -> None:
    merger = Merger()
    assert merger.receive(0, 1, 1) is Verdict.DELIVER
    assert merger.receive(A, 2, 2, LINE_A) is Verdict.DELIVER


def _view(tail: Cursor, line: Line, kind: Kind = Kind.TOKENS, oldest: int = 1) -> ChannelView:
    return ChannelView(oldest, tail, kind, line)


@pytest.mark.parametrize(
    ("cursor", "view", "outcome"),
    [
        (START, None, NotRecovered(None)),
        (Cursor(A, 5), None, NotRecovered(None)),
        (START, _view(Cursor(A, 9), LINE_A), Continues(LINE_A)),
        (START, _view(Cursor(A, 9), LINE_A, oldest=4), NotRecovered(4)),
        (Cursor(A, 3), _view(Cursor(A, 9), LINE_A, oldest=4), Continues(LINE_A)),
        (Cursor(A, 2), _view(Cursor(A, 9), LINE_A, oldest=4), NotRecovered(4)),
        (Cursor(A, 9), _view(Cursor(A, 9), LINE_A), Continues(LINE_A)),
        (Cursor(A, 10), _view(Cursor(A, 9), LINE_A), Behind(Cursor(A, 9), ended=False)),
        (Cursor(B, 4), _view(Cursor(A, 9), LINE_A, Kind.END), Behind(Cursor(A, 9), ended=True)),
        (Cursor(A, 9), _view(Cursor(B, 12), LINE_B), Continues(LINE_B)),
        (Cursor(A, 10), _view(Cursor(B, 12), LINE_B), Diverged(Cursor(A, 9), LINE_B)),
    ],
)
def test_a_resume_goes_on_or_says_why_not(cursor: Cursor, view: ChannelView | None, outcome: object) -> None:
    assert judge(cursor, view) == outcome
