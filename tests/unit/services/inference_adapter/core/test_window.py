from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.preload import PreloadDepth
from services.inference_adapter.core.window import BULK_SHARE, Window
from services.inference_adapter.core.window_events import (
    Crowded,
    Drop,
    Ended,
    Paused,
    Resized,
    Return,
    Start,
    Taken,
    Tick,
    Withdrawn,
)

NEVER = float("inf")


def taken(id_: str, priority: int = 0, rank: int = 0, expires_at: float = NEVER, deadline_at: float = NEVER) -> Taken:
    return Taken(id_, rank, priority, expires_at, deadline_at)


def window_of(slots: int, depth: int, degrade_s: float | None = None, ahead: int = 0) -> Window:
    return Window(slots, PreloadDepth(depth, most=depth), degrade_s, ahead)


def share(tenant: str, number: int, *, weight: int = 1, cost: int = 100, priority: int = 0) -> Taken:
    """One of many tasks of a tenant; priorities below 0 are bulk."""
    rank, lane = (1, "bulk") if priority < 0 else (0, tenant)
    return Taken(f"{tenant}-{number}", rank, priority, NEVER, NEVER, lane, tenant, weight, cost)


def test_a_task_starts_at_once_while_a_slot_is_free() -> None:
    window = window_of(2, 1)
    assert window.receive(taken("a"), 0) == [Start("a")]
    assert window.receive(taken("b"), 0) == [Start("b")]
    assert window.receive(taken("c"), 0) == []
    assert (window.running, window.waiting, window.free) == (2, 1, 0)


def test_running_and_waiting_together_never_exceed_slots_and_preload_depth() -> None:
    window = window_of(2, 3)
    for number in range(5):
        assert window.free == 5 - number
        window.receive(taken(str(number)), 0)
    assert window.free == 0
    window.receive(Ended("0"), 0)
    assert window.free == 1


def test_room_that_is_set_aside_is_not_given_twice() -> None:
    window = window_of(2, 3)
    assert window.reserve("a") == 5
    assert (window.free, window.unreserved, window.room("a")) == (5, 0, 0)
    # Idle slots are offered to each own lane; where others read too, only what no read may fill.
    assert window.room("b") == 5
    assert window.room("pool", shared=True) == 3
    window.release("a", 5)
    assert window.unreserved == 5


def test_a_full_lane_leaves_the_places_of_the_others_alone() -> None:
    window = window_of(1, 2)
    for number in range(3):
        window.receive(share("a", number), 0)
    assert (window.room("a"), window.room("b")) == (0, 2)
    window.receive(share("b", 0), 0)
    assert (window.room("a"), window.room("b")) == (0, 1)
    window.receive(Ended("a-0"), 0)
    assert window.room("a") + window.room("b") == 2


def test_order_is_class_then_priority_then_arrival() -> None:
    window = window_of(1, 10)
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
    window = window_of(1, 1)
    window.receive(taken("a"), 0)
    with pytest.raises(ValueError, match="already"):
        window.receive(taken("a"), 0)


def test_a_withdrawn_task_leaves_from_where_it_is_and_its_slot_goes_to_the_next() -> None:
    window = window_of(1, 2)
    for id_ in ("a", "b", "c"):
        window.receive(taken(id_), 0)
    assert window.receive(Withdrawn("b"), 0) == [Drop("b", "waiting", "withdrawn")]
    assert window.receive(Withdrawn("a"), 0) == [Drop("a", "running", "withdrawn"), Start("c")]
    assert window.receive(Withdrawn("a"), 0) == []
    assert (window.running, window.waiting) == (1, 0)


def test_the_end_of_something_unknown_changes_nothing() -> None:
    window = window_of(1, 0)
    window.receive(taken("a"), 0)
    assert window.receive(Ended("x"), 0) == []
    assert window.running == 1


def test_one_whose_wait_is_over_is_dropped_by_the_tick() -> None:
    window = window_of(1, 2)
    window.receive(taken("a", expires_at=5), 0)
    window.receive(taken("b", expires_at=5), 0)
    assert window.receive(Tick(), 4.9) == []
    # What runs does not wait any more.
    assert window.receive(Tick(), 5) == [Drop("b", "waiting", "queue_timeout")]


def test_the_deadline_ends_what_waits_and_what_runs() -> None:
    window = window_of(1, 2)
    window.receive(taken("a", deadline_at=5), 0)
    window.receive(taken("b", deadline_at=5, expires_at=4), 0)
    window.receive(taken("c"), 0)
    effects = window.receive(Tick(), 6)
    assert effects == [Drop("a", "running", "deadline"), Drop("b", "waiting", "deadline"), Start("c")]


def test_one_that_is_late_when_its_turn_comes_is_passed_over() -> None:
    window = window_of(1, 2)
    window.receive(taken("a"), 0)
    window.receive(taken("late", deadline_at=3, priority=9), 0)
    window.receive(taken("b"), 0)
    assert window.receive(Ended("a"), 3) == [Drop("late", "waiting", "deadline"), Start("b")]


def test_one_that_is_late_when_it_comes_never_starts() -> None:
    window = window_of(1, 0)
    assert window.receive(taken("a", deadline_at=1), 2) == [Drop("a", "waiting", "deadline")]
    assert window.free == 1


def test_a_paused_window_starts_and_takes_nothing_and_lets_go_on_what_runs() -> None:
    window = window_of(2, 2)
    window.receive(taken("a"), 0)
    assert window.receive(Paused(True), 0) == []
    assert window.free == 0
    assert window.receive(taken("b"), 0) == []
    assert (window.running, window.waiting) == (1, 1)
    assert window.receive(Paused(False), 0) == [Start("b")]
    assert window.free == 2


def test_with_a_full_kv_cache_nothing_begins_beside_what_runs_and_the_pool_is_left_to_others() -> None:
    window = window_of(2, 2)
    window.receive(taken("a"), 0)
    assert window.room("pool", shared=True) > 0
    assert window.receive(Crowded(yes=True), 1) == []
    assert window.room("pool", shared=True) == 0
    assert window.room("own") > 0
    assert window.receive(taken("b"), 1) == []
    assert window.ahead_of_new(0, 0) == 2
    assert window.receive(Crowded(yes=False), 2) == [Start("b")]
    assert window.room("pool", shared=True) > 0


def test_with_a_full_kv_cache_one_at_a_time_still_runs() -> None:
    window = window_of(3, 3)
    window.receive(Crowded(yes=True), 0)
    assert window.receive(taken("a"), 0) == [Start("a")]
    assert window.receive(taken("b"), 0) == []
    assert window.receive(Ended("a"), 1) == [Start("b")]


def test_a_new_task_waits_for_those_before_it_in_the_order() -> None:
    window = window_of(1, 9)
    assert window.ahead_of_new(0, 0) == 0
    window.receive(taken("a"), 0)
    window.receive(taken("b"), 0)
    window.receive(taken("c", priority=3), 0)
    assert window.ahead_of_new(0, 0) == 3
    assert window.ahead_of_new(0, 1) == 2
    assert window.ahead_of_new(0, 9) == 1
    assert window.ahead_of_new(1, -1) == 3


def test_an_id_may_come_again_after_it_left() -> None:
    window = window_of(1, 3)
    window.receive(taken("a"), 0)
    window.receive(taken("b", priority=9), 0)
    window.receive(taken("c"), 0)
    window.receive(Withdrawn("b"), 0)
    window.receive(taken("b"), 0)
    assert window.receive(Ended("a"), 0) == [Start("c")]
    assert window.receive(Ended("c"), 0) == [Start("b")]


def saturate(window: Window, tasks: list[Taken], starts: int) -> list[Taken]:
    """Runs one task after the other, with all the others waiting; returns them in the order of their start."""
    known, order, now = {task.id: task for task in tasks}, [], 0.0
    pending = [effect.id for task in tasks for effect in window.receive(task, 0) if isinstance(effect, Start)]
    while pending and len(order) < starts:
        id_ = pending.pop(0)
        order.append(known[id_])
        now += 0.01
        pending += [
            effect.id for effect in window.receive(Ended(id_, known[id_].cost), now) if isinstance(effect, Start)
        ]
    return order


def test_i5_tenants_share_tokens_by_weight() -> None:
    tasks = [share("gold", n, weight=4, cost=300) for n in range(400)] + [
        share("bronze", n, weight=1, cost=50) for n in range(900)
    ]
    started = saturate(window_of(10, 2000), tasks, 500)
    spent = {name: sum(task.cost for task in started if task.tenant == name) for name in ("gold", "bronze")}
    assert spent["gold"] / sum(spent.values()) == pytest.approx(0.8, abs=0.04)


def test_i5_bulk_gets_a_tenth_under_interactive_overload_and_no_more() -> None:
    tasks = [share("busy", n) for n in range(600)] + [share("batch", n, priority=-1) for n in range(600)]
    started = saturate(window_of(10, 2000), tasks, 500)
    spent = sum(task.cost for task in started if task.tenant == "batch") / sum(task.cost for task in started)
    assert BULK_SHARE - 0.01 <= spent <= BULK_SHARE + 0.05


def test_urgent_work_goes_before_everybodys_turn() -> None:
    window = window_of(5, 100)
    for number in range(30):
        window.receive(share("busy", number), 0)
    window.receive(share("vip", 0, priority=100), 1)
    assert window.urgent_from == 1
    assert window.receive(Ended("busy-0"), 1) == [Start("vip-0")]


def test_while_urgent_work_runs_a_slot_is_kept_for_the_next_of_it() -> None:
    window = window_of(5, 100, ahead=1)
    started = window.receive(share("vip", 0, priority=100), 0)
    for number in range(9):
        started += window.receive(share("busy", number), 0.1 + number)
    assert started == [Start("vip-0"), *(Start(f"busy-{number}") for number in range(3))]
    # Who is not urgent would have to wait, who is would not.
    assert (window.ahead_of_new(0, 0), window.ahead_of_new(0, 100)) == (10, 0)
    assert window.receive(share("vip", 1, priority=100), 10.2) == [Start("vip-1")]
    # One goes to the others as soon as one urgent task less runs, all as soon as none does.
    assert window.receive(Ended("vip-0"), 10.3) == []
    assert window.receive(Ended("busy-0"), 10.4) == [Start("busy-3")]
    assert window.receive(Ended("vip-1"), 10.5) == [Start("busy-4"), Start("busy-5")]


def test_no_slot_is_kept_where_all_are_alike_or_there_is_room_for_all() -> None:
    alike, calm = window_of(4, 100, ahead=1), window_of(16, 4, ahead=1)
    for number in range(8):
        alike.receive(share("busy", number, priority=100), 0)
    assert alike.running == 4
    calm.receive(share("vip", 0, priority=100), 0)
    for number in range(11):
        calm.receive(share("busy", number), 0.1)
    assert calm.running == 12
    assert calm.receive(share("batch", 0, priority=-1), 0.2) == [Start("batch-0")]


def test_bulk_starts_in_no_slot_that_is_kept_even_when_it_is_owed() -> None:
    window = window_of(5, 2000, ahead=1)
    window.receive(share("vip", 0, priority=100), 0)
    tasks = [share("busy", n) for n in range(600)] + [share("batch", n, priority=-1) for n in range(600)]
    started = saturate(window, tasks, 500)
    assert window.running == 4
    spent = sum(task.cost for task in started if task.tenant == "batch") / sum(task.cost for task in started)
    assert spent >= BULK_SHARE - 0.01


@given(st.lists(st.tuples(st.sampled_from([-1, 0, 50, 100]), st.integers(0, 40)), max_size=120), st.integers(0, 9))
def test_slots_ahead_keep_nobody_waiting_for_ever(steps: list[tuple[int, int]], ahead: int) -> None:
    """Whatever comes and ends: when all has ended that runs, everything that came has run."""
    window, running, now = window_of(6, 1000, ahead=ahead), [], 0.0
    for came, (priority, ends) in enumerate(steps):
        now += 0.01
        effects = window.receive(share(f"t{priority}", came, priority=priority), now)
        if running and ends < 20:
            effects += window.receive(Ended(running.pop(ends % len(running))), now)
        running += [effect.id for effect in effects if isinstance(effect, Start)]
        assert len(running) == window.running <= 6
    while running:
        now += 0.01
        running += [effect.id for effect in window.receive(Ended(running.pop(0)), now) if isinstance(effect, Start)]
    assert (window.running, window.waiting) == (0, 0)


def test_who_calls_everything_urgent_leaves_the_others_their_turns() -> None:
    tasks = [share("loud", n, priority=127) for n in range(500)] + [share("quiet", n) for n in range(500)]
    started = saturate(window_of(10, 2000), tasks, 300)
    assert sum(task.tenant == "quiet" for task in started) >= 100


def test_one_that_cannot_have_its_first_token_in_time_is_passed_over() -> None:
    window = window_of(1, 4)
    window.receive(taken("a"), 0)
    window.receive(Taken("slow", 0, 0, NEVER, 10.0, first_token_s=3.0), 0)
    assert window.receive(Ended("a"), 8) == [Drop("slow", "waiting", "deadline")]


def depth_after(*, ends_at: float, read_at: float, tasks: int, room: int) -> int:
    """One slot, one task that ends; later a read brings more. The depth of the next round; it began with 2."""
    window = Window(1, PreloadDepth(2))
    window.receive(Tick(), 0)
    window.receive(taken("a"), 0)
    window.receive(Ended("a"), ends_at)
    for number in range(tasks):
        window.receive(taken(f"b{number}"), read_at)
    window.took(tasks, room)
    window.receive(Tick(), read_at + 1)
    return window.preload.value


def test_the_depth_grows_only_when_a_slot_stood_idle_and_a_lane_held_more_than_could_be_taken() -> None:
    assert depth_after(ends_at=1, read_at=1.01, tasks=3, room=3) == 4
    assert depth_after(ends_at=1, read_at=1.01, tasks=1, room=3) == 2
    # A burst after a rest, however large, is no reason.
    assert depth_after(ends_at=1, read_at=9, tasks=3, room=3) == 2


def test_what_waited_too_long_goes_back_once_unless_it_is_urgent() -> None:
    window = window_of(1, 9, degrade_s=5)
    window.receive(taken("a"), 0)
    for id_, priority, movable in (("low", 0, True), ("was back already", 0, False), ("urgent", 9, True)):
        window.receive(Taken(id_, 0, priority, NEVER, NEVER, movable=movable), 1)
    assert window.receive(Tick(), 5.9) == []
    assert window.receive(Tick(), 6) == [Return("low")]
    assert window.waiting == 2


def test_d1_what_another_worker_had_begun_starts_before_everything_that_waits() -> None:
    window = window_of(1, 9)
    window.receive(taken("running"), 0)
    for task in (taken("first"), taken("urgent", 100), taken("bulk", -1, rank=1)):
        window.receive(task, 0)
    for id_, priority in (("one", -5), ("two", 0)):
        window.receive(Taken(id_, 0, priority, NEVER, NEVER, broken_off=True), 0)
    assert window.ahead_of_new(0, 127) == 3
    started = []
    for id_ in ("running", "one", "two", "urgent"):
        started += window.receive(Ended(id_), 1)
    assert started == [Start("one"), Start("two"), Start("urgent"), Start("first")]


def test_what_was_broken_off_can_leave_while_it_waits() -> None:
    window = window_of(1, 9)
    window.receive(taken("running"), 0)
    window.receive(Taken("gone", 0, 0, NEVER, NEVER, broken_off=True), 0)
    window.receive(taken("next"), 0)
    assert window.receive(Withdrawn("gone"), 0) == [Drop("gone", "waiting", "withdrawn")]
    assert window.receive(Ended("running"), 1) == [Start("next")]


def test_what_was_broken_off_is_paid_for_by_its_tenant() -> None:
    window = window_of(1, 99)
    window.receive(share("x", 0), 0)
    window.receive(Taken("a-off", 0, 0, NEVER, NEVER, "a", "a", cost=1000, broken_off=True), 0)
    for number in range(4):
        window.receive(share("a", number), 0)
        window.receive(share("b", number), 0)
    order, current = [], "x-0"
    while effects := window.receive(Ended(current), 1):
        assert isinstance(effects[0], Start)
        current = effects[0].id
        order.append(current)
    assert order[0] == "a-off"
    assert order[1:5] == ["b-0", "b-1", "b-2", "b-3"]


_STEPS = st.lists(
    st.one_of(
        st.builds(
            Taken,
            st.sampled_from("abcdefgh"),
            st.integers(0, 1),
            st.integers(-2, 2),
            st.sampled_from([3.0, 8.0, NEVER]),
            st.sampled_from([5.0, NEVER]),
            st.sampled_from(["", "b"]),
            st.sampled_from("tu"),
            st.integers(1, 4),
            st.integers(1, 5000),
            st.sampled_from([0.0, 2.0]),
            st.booleans(),
            st.booleans(),
        ),
        st.builds(Ended, st.sampled_from("abcdefgh"), st.sampled_from([None, 1, 9000])),
        st.builds(Withdrawn, st.sampled_from("abcdefgh")),
        st.builds(Paused, st.booleans()),
        st.just(Tick()),
    ),
    max_size=60,
)


@given(_STEPS, st.integers(1, 3), st.integers(0, 2))
def test_whatever_happens_every_task_leaves_once_and_slots_are_used(steps: list, slots: int, depth: int) -> None:
    window = window_of(slots, depth, degrade_s=4)
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
            elif isinstance(effect, Return):
                waiting.remove(effect.id)
            else:
                (waiting if effect.stage == "waiting" else running).remove(effect.id)
        assert (window.waiting, window.running) == (len(waiting), len(running))
        assert len(running) <= slots
        assert len(waiting) + len(running) <= slots + depth
        assert paused or not waiting or len(running) == slots


def test_another_number_of_slots_cuts_nothing_and_who_waits_keeps_the_place() -> None:
    window = window_of(3, 4)
    for name in ("a", "b", "c", "d", "e", "f"):
        window.receive(taken(name, priority=1 if name == "e" else 0), 0)
    before = window.running
    assert window.receive(Resized(1), 0) == []
    assert (before, window.running, window.waiting, window.free) == (3, 3, 3, 0)
    # Two leave without a successor; then the order is what it was.
    assert [window.receive(Ended(name), 0) for name in ("a", "b", "c")] == [[], [], [Start("e")]]
    assert window.receive(Resized(3), 0) == [Start("d"), Start("f")]
    assert window.free == 4


def test_more_slots_start_nothing_while_the_engine_is_paused() -> None:
    window = window_of(1, 4)
    window.receive(taken("a"), 0)
    window.receive(taken("b"), 0)
    window.receive(Paused(True), 0)
    assert window.receive(Resized(5), 0) == []
    assert window.receive(Paused(False), 0) == [Start("b")]
