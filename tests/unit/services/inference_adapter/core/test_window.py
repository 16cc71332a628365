from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.window import Drop, Ended, Paused, Start, Taken, Tick, Window, Withdrawn

NEVER = float("inf")


def taken(id_: str, priority: int = 0, rank: int = 0, expires_at: float = NEVER, deadline_at: float = NEVER) -> Taken:
    return Taken(id_, rank, priority, expires_at, deadline_at)


def test_a_task_starts_at_once_while_a_slot_is_free() -> None:
    window = Window(slots=2, preload_depth=1)
    assert window.receive(taken("a"), 0) == [Start("a")]
    assert window.receive(taken("b"), 0) == [Start("b")]
    assert window.receive(taken("c"), 0) == []
    assert (window.running, window.waiting, window.free) == (2, 1, 0)


def test_running_and_waiting_together_never_exceed_slots_and_preload_depth() -> None:
    window = Window(slots=2, preload_depth=3)
    for number in range(5):
        assert window.free == 5 - number
        window.receive(taken(str(number)), 0)
    assert window.free == 0
    window.receive(Ended("0"), 0)
    assert window.free == 1


def test_room_that_is_reserved_is_not_given_twice() -> None:
    window = Window(slots=1, preload_depth=2)
    assert window.reserve(2) == 2
    assert (window.free, window.unreserved) == (3, 1)
    assert window.reserve(5) == 1
    assert window.reserve(1) == 0
    window.release(2)
    assert window.unreserved == 2
    window.receive(taken("a"), 0)
    assert (window.free, window.unreserved) == (2, 1)


def test_order_is_class_then_priority_then_arrival() -> None:
    window = Window(slots=1, preload_depth=10)
    window.receive(taken("running"), 0)
    for task in (
        taken("bulk", priority=-1, rank=1),
        taken("first"),
        taken("second"),
        taken("urgent", priority=5),
        taken("bulk, urgent in its class", priority=-1 + 1, rank=1),
    ):
        window.receive(task, 0)
    order = []
    current = "running"
    while window.running:
        effects = window.receive(Ended(current), 0)
        if effects:
            assert isinstance(effects[0], Start)
            current = effects[0].id
            order.append(current)
    assert order == ["urgent", "first", "second", "bulk, urgent in its class", "bulk"]


def test_a_task_is_taken_only_once() -> None:
    window = Window(slots=1, preload_depth=1)
    window.receive(taken("a"), 0)
    with pytest.raises(ValueError, match="already"):
        window.receive(taken("a"), 0)


def test_a_withdrawn_task_leaves_from_where_it_is_and_its_slot_goes_to_the_next() -> None:
    window = Window(slots=1, preload_depth=2)
    for id_ in ("a", "b", "c"):
        window.receive(taken(id_), 0)
    assert window.receive(Withdrawn("b"), 0) == [Drop("b", "waiting", "withdrawn")]
    assert window.receive(Withdrawn("a"), 0) == [Drop("a", "running", "withdrawn"), Start("c")]
    assert window.receive(Withdrawn("a"), 0) == []
    assert (window.running, window.waiting) == (1, 0)


def test_the_end_of_something_unknown_changes_nothing() -> None:
    window = Window(slots=1, preload_depth=0)
    window.receive(taken("a"), 0)
    assert window.receive(Ended("x"), 0) == []
    assert window.running == 1


def test_one_whose_wait_is_over_is_dropped_by_the_tick() -> None:
    window = Window(slots=1, preload_depth=2)
    window.receive(taken("a", expires_at=5), 0)
    window.receive(taken("b", expires_at=5), 0)
    assert window.receive(Tick(), 4.9) == []
    # What runs does not wait any more.
    assert window.receive(Tick(), 5) == [Drop("b", "waiting", "queue_timeout")]


def test_the_deadline_ends_what_waits_and_what_runs() -> None:
    window = Window(slots=1, preload_depth=2)
    window.receive(taken("a", deadline_at=5), 0)
    window.receive(taken("b", deadline_at=5, expires_at=4), 0)
    window.receive(taken("c"), 0)
    effects = window.receive(Tick(), 6)
    assert effects == [Drop("a", "running", "deadline"), Drop("b", "waiting", "deadline"), Start("c")]


def test_one_that_is_late_when_its_turn_comes_is_passed_over() -> None:
    window = Window(slots=1, preload_depth=2)
    window.receive(taken("a"), 0)
    window.receive(taken("late", deadline_at=3, priority=9), 0)
    window.receive(taken("b"), 0)
    assert window.receive(Ended("a"), 3) == [Drop("late", "waiting", "deadline"), Start("b")]


def test_one_that_is_late_when_it_comes_never_starts() -> None:
    window = Window(slots=1, preload_depth=0)
    assert window.receive(taken("a", deadline_at=1), 2) == [Drop("a", "waiting", "deadline")]
    assert window.free == 1


def test_a_paused_window_starts_and_takes_nothing_and_lets_go_on_what_runs() -> None:
    window = Window(slots=2, preload_depth=2)
    window.receive(taken("a"), 0)
    assert window.receive(Paused(True), 0) == []
    assert window.free == 0
    assert window.receive(taken("b"), 0) == []
    assert (window.running, window.waiting) == (1, 1)
    assert window.receive(Paused(False), 0) == [Start("b")]
    assert window.free == 2


def test_a_new_task_waits_for_those_before_it_in_the_order() -> None:
    window = Window(slots=1, preload_depth=9)
    assert window.ahead_of_new(0, 0) == 0
    window.receive(taken("a"), 0)
    window.receive(taken("b"), 0)
    window.receive(taken("c", priority=3), 0)
    assert window.ahead_of_new(0, 0) == 3
    assert window.ahead_of_new(0, 1) == 2
    assert window.ahead_of_new(0, 9) == 1
    assert window.ahead_of_new(1, -1) == 3


def test_an_id_may_come_again_after_it_left() -> None:
    window = Window(slots=1, preload_depth=3)
    window.receive(taken("a"), 0)
    window.receive(taken("b", priority=9), 0)
    window.receive(taken("c"), 0)
    window.receive(Withdrawn("b"), 0)
    window.receive(taken("b"), 0)
    assert window.receive(Ended("a"), 0) == [Start("c")]
    assert window.receive(Ended("c"), 0) == [Start("b")]


_STEPS = st.lists(
    st.one_of(
        st.builds(
            Taken,
            st.sampled_from("abcdefgh"),
            st.integers(0, 1),
            st.integers(-2, 2),
            st.sampled_from([3.0, 8.0, NEVER]),
            st.sampled_from([5.0, NEVER]),
        ),
        st.builds(Ended, st.sampled_from("abcdefgh")),
        st.builds(Withdrawn, st.sampled_from("abcdefgh")),
        st.builds(Paused, st.booleans()),
        st.just(Tick()),
    ),
    max_size=60,
)


@given(_STEPS, st.integers(1, 3), st.integers(0, 2))
def test_whatever_happens_every_task_leaves_once_and_slots_are_used(steps: list, slots: int, depth: int) -> None:
    window = Window(slots, depth)
    waiting: set[str] = set()
    running: set[str] = set()
    paused = False
    for now, step in enumerate(steps):
        match step:
            case Taken(id=id_):
                if id_ in waiting | running or not window.free:
                    continue
                waiting.add(id_)
            case Ended(id=id_):
                if id_ not in running:
                    continue
                running.discard(id_)
            case Paused(yes=yes):
                paused = yes
        for effect in window.receive(step, now):
            if isinstance(effect, Start):
                waiting.remove(effect.id)
                running.add(effect.id)
            else:
                (waiting if effect.stage == "waiting" else running).remove(effect.id)
        assert (window.waiting, window.running) == (len(waiting), len(running))
        assert len(running) <= slots
        assert len(waiting) + len(running) <= slots + depth
        assert paused or not waiting or len(running) == slots
