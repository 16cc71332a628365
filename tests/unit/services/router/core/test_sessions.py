"""The table of sessions, and the pace of moves."""

from __future__ import annotations

from services.router.core.pace import Pace
from services.router.core.sessions import Sessions, Stay


def test_the_table_is_bounded_and_the_longest_unused_make_room() -> None:
    sessions = Sessions(most=3, ttl_s=100)
    for number in range(5):
        sessions.placed("t", "m", f"s{number}", "a", "a", 10, float(number))
        sessions.placed("t", "m", "s0", "a", "a", 10, float(number))
    assert len(sessions) == 3
    assert sessions.find("t", "m", "s0", 5.0) is not None
    assert sessions.find("t", "m", "s2", 5.0) is None


def test_what_is_too_old_is_gone_from_the_table_too() -> None:
    sessions = Sessions(most=100, ttl_s=10)
    sessions.placed("t", "m", "old", "a", "a", 10, 0.0)
    assert sessions.find("t", "m", "old", 9.9) is not None
    assert sessions.find("t", "m", "old", 10.0) is None
    sessions.placed("t", "m", "new", "a", "a", 10, 20.0)
    assert len(sessions) == 1


def test_the_last_two_places_are_known_with_what_each_has() -> None:
    sessions = Sessions(most=100, ttl_s=10)
    sessions.placed("t", "m", "s", "a", "a", 100, 0.0)
    stay = sessions.placed("t", "m", "s", "a", "b", 300, 1.0)
    assert stay.away
    assert [sessions.cached(stay, worker, 2.0) for worker in "abc"] == [100, 300, 0]
    assert sessions.cached(stay, "a", 10.5) == 0, "what was left there is older"
    assert sessions.cached(None, "a", 2.0) == 0
    sessions.placed("t", "m", "s", "a", "b", 400, 3.0)
    assert [sessions.cached(stay, worker, 4.0) for worker in "ab"] == [100, 400]


def test_what_is_known_here_is_not_overwritten_by_what_others_know() -> None:
    sessions = Sessions(most=100, ttl_s=10)
    mine = sessions.placed("t", "m", "s", "a", "b", 100, 0.0)
    sessions.learn("t", "m", "s", Stay("a", "c", 5, 0.0))
    assert sessions.find("t", "m", "s", 1.0) is mine


def test_a_pace_fills_again_and_never_beyond_a_second() -> None:
    pace = Pace(2)
    for _ in range(2):
        assert pace.allows("w", 0.0)
        pace.moved("w", 0.0)
    assert not pace.allows("w", 0.4)
    assert pace.allows("other", 0.4)
    assert pace.allows("w", 0.5)
    pace.moved("w", 100.0)
    pace.moved("w", 100.0)
    assert not pace.allows("w", 100.0)


def test_a_slow_pace_still_lets_one_move_and_a_clock_that_jumps_back_gives_nothing() -> None:
    pace = Pace(0.1)
    assert pace.allows("w", 50.0)
    pace.moved("w", 50.0)
    assert not pace.allows("w", 20.0)
    assert not pace.allows("w", 59.0)
    assert pace.allows("w", 60.0)
    pace.keep_only(set())
    assert pace.allows("w", 50.0)
