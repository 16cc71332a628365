"""What waits in each lane of a worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.core.queues import EVERY_LANE, NO_LANE, Queues

LANES = st.tuples(*[st.integers(0, 60)] * 4)


def test_what_runs_is_taken_off_and_free_slots_go_to_the_highest_lanes() -> None:
    queues = Queues.of((9, 3, 4, 2), running=(3, 2, 1, 0), busy=7, slots=8)
    assert (queues.waiting, queues.idle) == ((5, 1, 3, 2), 0)
    # With two more slots gold takes three.
    assert Queues.of((9, 3, 4, 2), (3, 2, 1, 0), 7, 10).waiting == (3, 1, 3, 2)


def test_nothing_waits_and_nothing_is_full_while_a_slot_is_idle() -> None:
    queues = Queues.of((3, 0, 0, 0), running=(0, 0, 0, 0), busy=0, slots=4)
    assert (queues.waiting, queues.idle) == ((0, 0, 0, 0), 1)
    assert queues.full(0) == NO_LANE


def test_a_lane_is_full_at_its_limit_whatever_waits_in_the_others() -> None:
    queues = Queues.of((8, 40, 4, 0), running=(4, 0, 0, 0), busy=4, slots=4)
    assert queues.full(5) == {"silver"}
    assert queues.full(4) == {"gold", "silver", "bronze"}
    # Without a queue a lane is full as soon as a task would wait.
    assert queues.full(0) == EVERY_LANE


def test_what_came_past_the_lanes_holds_slots_too() -> None:
    assert Queues.of((4, 0, 0, 0), running=(1, 0, 0, 0), busy=4, slots=4).waiting == (3, 0, 0, 0)


def test_what_has_ended_since_the_report_has_made_room() -> None:
    # Three of gold ran; one is left of them, and bronze has their slots.
    assert Queues.of((1, 0, 3, 0), running=(3, 0, 1, 0), busy=4, slots=4).waiting == (0, 0, 0, 0)


@pytest.mark.parametrize("said", [(65_536, 0, 0, 0), (65_536,) * 4])
def test_a_worker_that_says_that_all_of_it_runs_is_believed_up_to_its_slots(said: tuple[int, int, int, int]) -> None:
    queues = Queues.of((100, 0, 0, 0), said, busy=65_536, slots=4)
    assert queues.waiting == (96, 0, 0, 0)
    assert queues.full(8) == {"gold"}


@given(LANES, LANES, st.integers(0, 200), st.integers(1, 64))
def test_as_many_wait_as_slots_do_not_hold_at_most_what_is_there(
    tasks: tuple[int, int, int, int], running: tuple[int, int, int, int], busy: int, slots: int
) -> None:
    queues = Queues.of(tasks, running, busy, slots)
    assert all(0 <= waiting <= there for waiting, there in zip(queues.waiting, tasks, strict=True))
    assert sum(queues.waiting) >= sum(tasks) - slots
    assert queues.idle == 0 or not any(queues.waiting)
    if busy <= sum(running):
        assert sum(queues.waiting) == max(0, sum(tasks) - slots), "its slots are in use as long as anything waits"
