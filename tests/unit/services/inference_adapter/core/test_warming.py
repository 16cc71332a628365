from __future__ import annotations

import pytest

from services.inference_adapter.core.warming import Kind, Load, Prefix, Warming

IDLE = Load(running=0, waiting=0, slots=10, kv_used=0.1)


def prefix(name: str, kind: Kind = "session", tenant: str = "t", grown_at: float = float("-inf")) -> Prefix:
    return Prefix(kind, (tenant, "m", name), b"context", grown_at)


def warming(share: float = 0.2, most_waiting: int = 64) -> Warming:
    return Warming(share=share, most_load=0.7, lives_s=100, most_waiting=most_waiting)


def test_a_fifth_of_the_time_is_spent_at_most() -> None:
    made, spent, now = warming(), 0.0, 0.0
    for number in range(50):
        made.offer(prefix(str(number)), 0.0)
    while now < 100:
        chosen = made.next(IDLE, now)
        if chosen is None:
            now += 0.01
            continue
        now += 0.5
        spent += 0.5
        made.done(chosen, 0.5, now)
    assert 19 < spent <= 20.5


@pytest.mark.parametrize(
    ("load", "warms"),
    [
        (IDLE, True),
        (Load(7, 0, 10), True),
        (Load(8, 0, 10), False),
        (Load(0, 1, 10), False),
        (Load(0, 0, 10, 0.71), False),
        (Load(1, 0, 1), False),
        (Load(0, 0, 1), True),
    ],
)
def test_it_needs_an_idle_slot_and_a_load_below_the_bound(load: Load, warms: bool) -> None:
    made = warming()
    made.offer(prefix("s"), 0.0)
    assert (made.next(load, 0.0) is not None) is warms


def test_system_prompts_come_first() -> None:
    made = warming()
    made.offer(prefix("s"), 0.0)
    made.offer(prefix("p", "system"), 0.0)
    assert [each.kind for _ in range(2) if (each := made.next(IDLE, 0.0))] == ["system", "session"]


def test_what_waits_is_bounded_and_waits_once() -> None:
    made = warming(most_waiting=2)
    assert [made.offer(prefix(name), 0.0) for name in ("a", "a", "b", "c")] == [True, False, True, False]
    assert (len(made), made.room) == (2, 0)


def test_a_hit_counts_once_and_only_where_warming_put_it_there() -> None:
    made = warming()
    made.offer(prefix("s"), 0.0)
    chosen = made.next(IDLE, 0.0)
    assert chosen is not None
    made.done(chosen, 0.1, 1.0)
    made.began(("t", "m", "s"), 2.0)
    assert made.used(("t", "m", "s"), 3.0) == "session"
    assert made.used(("t", "m", "s"), 4.0) is None
    assert made.used(("t", "m", "other"), 4.0) is None
    assert made.used(("u", "m", "s"), 4.0) is None, "another tenant's session of the same name"


def test_a_hit_that_comes_too_late_is_none() -> None:
    made = warming()
    made.offer(prefix("s"), 0.0)
    chosen = made.next(IDLE, 0.0)
    assert chosen is not None
    made.done(chosen, 0.1, 0.0)
    assert made.used(("t", "m", "s"), 100.0) is None


def test_what_is_there_is_not_warmed_again_unless_it_has_grown() -> None:
    made = warming()
    made.began(("t", "m", "s"), 5.0)
    assert not made.offer(prefix("s"), 6.0)
    assert not made.offer(prefix("s", grown_at=4.0), 6.0)
    assert made.offer(prefix("s", grown_at=5.5), 6.0)
    assert warming().offer(prefix("s"), 6.0)


def test_what_is_there_is_forgotten_with_its_kv() -> None:
    made = warming()
    made.used(("t", "m", "s"), 0.0)
    assert not made.offer(prefix("s"), 99.0)
    assert made.offer(prefix("s"), 100.0)


def test_a_session_that_came_by_itself_is_not_warmed_any_more() -> None:
    made = warming()
    made.offer(prefix("s"), 0.0)
    made.began(("t", "m", "s"), 1.0)
    assert made.next(IDLE, 1.0) is None


def test_real_work_stops_it_and_it_is_tried_three_times() -> None:
    made = warming(share=1.0)
    made.offer(prefix("s"), 0.0)
    for _ in range(3):
        chosen = made.next(IDLE, 0.0)
        assert chosen is not None
        made.stopped(chosen, 0.1, 0.0)
    assert made.next(IDLE, 0.0) is None


def test_one_that_was_stopped_by_its_own_session_is_not_tried_again() -> None:
    made = warming(share=1.0)
    made.offer(prefix("s"), 0.0)
    chosen = made.next(IDLE, 0.0)
    assert chosen is not None
    made.began(chosen.name, 1.0)
    made.stopped(chosen, 0.1, 1.0)
    assert made.next(IDLE, 2.0) is None


def test_what_the_engine_refuses_is_not_tried_again() -> None:
    made = warming(share=1.0)
    made.offer(prefix("s"), 0.0)
    chosen = made.next(IDLE, 0.0)
    assert chosen is not None
    made.failed(chosen, 0.1, 0.0)
    assert made.next(IDLE, 0.0) is None
    assert made.used(chosen.name, 1.0) is None
