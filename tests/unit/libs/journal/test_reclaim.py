"""The fate of a task copy whose holder is gone."""

from __future__ import annotations

import pytest

from streamway.journal.entries import Begin, Entry, Kind, Tail
from streamway.journal.line import Line
from streamway.journal.reclaim import Drop, Fate, GiveUp, Requeue, Why, decide
from streamway.lanes.task import TaskCopy

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
        (2, _tail(1, "other"), Requeue(3)),
        (1, _tail(2, "mine"), Requeue(3)),
        (1, _tail(0, ""), Requeue(2)),
        (3, _tail(3, "mine"), GiveUp(4)),
        (3, _tail(0, ""), GiveUp(4)),
    ],
)
def test_a_copy_is_dropped_moved_or_given_up(attempt: int, tail: Tail | None, fate: Fate) -> None:
    assert decide(TaskCopy("g", attempt, "mine"), tail) == fate
