"""The fate of a task copy whose holder is gone."""

from __future__ import annotations

import pytest

from streamway.journal.entries import Begin, Entry, Kind, Tail
from streamway.journal.line import Line
from streamway.journal.reclaim import Drop, Fate, GiveUp, Requeue, Why, decide
from streamway.lanes.task import MOST_ATTEMPTS, EarlierCall, TaskCopy

LINE = Line(((0, 1),))


def _tail(attempt: int, ref: str, kind: Kind = Kind.TOKENS) -> Tail:
    epoch = attempt << 20 | 5
    begin = Begin(ref, "w0", LINE.extend(epoch, 2)) if attempt else None
    return Tail(Entry(epoch if attempt else 0, 3, 3, kind, b""), begin)


@pytest.mark.parametrize(
    ("attempt", "tail", "fate"),
    [
        (1, None, Drop(Why.NO_CHANNEL)),
        (1, _tail(1, "mine", Kind.END), Drop(Why.ENDED)),
        (1, _tail(2, "other", Kind.END), Drop(Why.ENDED)),
        (1, _tail(1, "other"), Drop(Why.STALE)),
        (1, _tail(2, "other"), Drop(Why.STALE)),
        (1, _tail(1, "mine"), Requeue(2)),
        (2, _tail(1, "other"), Requeue(3, excused=1)),
        (1, _tail(2, "mine"), Requeue(3)),
        (1, _tail(0, ""), Requeue(2, excused=1)),
        (3, _tail(3, "mine"), GiveUp(4)),
        (3, _tail(0, ""), Requeue(4, excused=1)),
    ],
)
def test_a_copy_is_dropped_moved_or_given_up(attempt: int, tail: Tail | None, fate: Fate) -> None:
    assert decide(TaskCopy("g", attempt, "mine"), tail) == fate


def _hand_on(copy: TaskCopy, tail: Tail, *, planned: bool = False) -> TaskCopy:
    fate = decide(copy, tail, planned=planned)
    assert isinstance(fate, Requeue), fate
    return TaskCopy("g", fate.attempt, "mine", fate.excused)


def test_planned_moves_and_copies_that_were_never_begun_are_no_failures() -> None:
    copy = TaskCopy("g", 1, "mine")
    for _ in range(3):
        copy = _hand_on(copy, _tail(copy.attempt, "mine"), planned=True)
    for _ in range(3):
        copy = _hand_on(copy, _tail(3, "other"))
    assert (copy.attempt, copy.failures) == (7, 0)
    for _ in range(2):
        copy = _hand_on(copy, _tail(copy.attempt, "mine"))
    assert copy.failures == 2
    assert decide(copy, _tail(copy.attempt, "mine")) == GiveUp(copy.attempt + 1)


def test_moves_are_bounded_too() -> None:
    copy = TaskCopy("g", 1, "mine")
    for _ in range(4 * MOST_ATTEMPTS - 1):
        copy = _hand_on(copy, _tail(0, ""))
    assert decide(copy, _tail(0, "")) == GiveUp(copy.attempt + 1)


def test_a_copy_keeps_what_excuses_it() -> None:
    before = (EarlierCall("adapter-0", 1048577), EarlierCall("adapter-1", 0))
    for copy in (TaskCopy("g", 4, "r", 2), TaskCopy("g", 1, "r"), TaskCopy("g", 3, "r", before=before)):
        fields = {name.encode(): str(value).encode() for name, value in copy.fields().items()}
        assert TaskCopy.parse(fields) == copy
