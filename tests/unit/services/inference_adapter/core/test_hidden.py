"""Pending tasks that their own worker never saw."""

from __future__ import annotations

from services.inference_adapter.core.hidden import LOOK_S, HiddenTasks
from streamway.lanes import TakenTask, TaskCopy


def task(entry: str) -> TakenTask:
    return TakenTask(TaskCopy("g", 1, "r"), "lane", entry, "gold")


def test_the_first_look_comes_after_a_while_and_then_again_and_again() -> None:
    hidden = HiddenTasks()
    assert [hidden.due(now) for now in (100.0, 104.0, 100.0 + LOOK_S, 106.0, 100.0 + 2 * LOOK_S)] == [
        False,
        False,
        True,
        False,
        True,
    ]


def test_only_what_is_unknown_twice_in_a_row_counts() -> None:
    hidden = HiddenTasks()
    assert hidden.confirmed([task("1-0"), task("2-0")]) == []
    assert hidden.confirmed([task("2-0"), task("3-0")]) == [task("2-0")]
    assert hidden.confirmed([]) == []
    assert hidden.confirmed([task("3-0")]) == []
