"""Pressure on an edge: levels that come and go, the score, and which connections give way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from services.edge.core.pressure import FirstTokenSample, Idle, Pressure, PressureRules

RULES = PressureRules(requests_per_s=100)


def flooded(rules: PressureRules = RULES) -> Pressure:
    """All three parts at their most."""
    pressure = Pressure(rules, 0.0)
    pressure.requests(1000, 0.0)
    pressure.sample(5000, 1.0, 0.0)
    return pressure


def idle(number: int) -> list[Idle[int]]:
    return [Idle(each, 1, float(each)) for each in range(number)]


def test_level_1_comes_after_five_seconds_over_one_and_a_half_times_the_limit_and_goes_after_five_below() -> None:
    pressure = Pressure(RULES, 0.0)
    turned = [now for now in range(1, 10) if pressure.requests(151, now)]
    assert turned == [6]
    assert pressure.crowded
    assert not pressure.requests(150, 10.0), "one second below is none"
    assert not pressure.requests(151, 11.0)
    turned = [now for now in range(12, 20) if pressure.requests(20, now)]
    assert turned == [17]
    assert not pressure.crowded


def test_level_1_does_not_come_by_bursts_or_at_the_limit() -> None:
    pressure = Pressure(RULES, 0.0)
    for now in range(1, 100):
        assert not pressure.requests(150 if now % 5 == 0 else 10_000, now)
    assert not any(pressure.requests(150, now) for now in range(100, 200))


def test_without_a_limit_requests_are_not_watched_and_nothing_ever_gives_way() -> None:
    pressure = flooded(PressureRules())
    assert not any(pressure.requests(1e9, now) for now in range(1, 100))
    assert pressure.score < 0.85
    assert not pressure.evicts
    assert pressure.giving_way(idle(100_000), 100_000) == []


def test_level_2_comes_with_the_third_slow_sample_and_goes_with_the_third_quick_one() -> None:
    pressure = Pressure(RULES, 0.0)
    assert [pressure.sample(801, 0.1, now) for now in (5, 10, 15, 20)] == [False, False, True, False]
    assert pressure.slow
    assert [pressure.sample(ms, 0.1, now) for now, ms in ((25, 800), (30, 801), (35, 0), (40, 10))] == [False] * 4
    assert pressure.sample(0, 0.1, 45), "nobody waited"
    assert not pressure.slow


def test_the_score_weighs_its_parts_and_each_falls_with_its_own_time() -> None:
    pressure = flooded()
    assert pressure.score == pytest.approx(1.0)
    assert pressure.evicts
    pressure.requests(0, 30.0)
    pressure.sample(0, 0.0, 30.0)
    assert pressure.parts == pytest.approx((math.exp(-1), math.exp(-0.5), math.exp(-2)))
    assert pressure.score == pytest.approx(0.40 * math.exp(-1) + 0.35 * math.exp(-0.5) + 0.25 * math.exp(-2))
    pressure.sample(400, 0.46, 31.0)
    assert pressure.parts[2] == pytest.approx(0.5)


def test_over_its_mark_the_score_says_how_many_go_the_rarely_used_and_longest_idle_first() -> None:
    pressure = flooded()
    connections = [Idle("often", 9, 1.0), Idle("late", 1, 50.0), Idle("early", 1, 2.0), Idle("never", 0, 90.0)]
    assert pressure.giving_way(connections, 20) == ["never", "early", "late"]
    assert len(list(pressure.giving_way(idle(1000), 1000))) == 150
    quiet = Pressure(RULES, 0.0)
    quiet.sample(5000, 1.0, 0.0)
    assert quiet.giving_way(idle(1000), 1000) == []


@pytest.mark.parametrize(("ms", "memory", "kept"), [(0, 0.5, 4), (900, 0.5, 2), (900, 0.92, 1), (0, 0.95, 1)])
def test_some_are_kept_whatever_the_score_fewer_the_harder_it_is_pressed(ms: float, memory: float, kept: int) -> None:
    pressure = Pressure(replace(RULES, score=-10.0), 0.0)
    for now in (5.0, 10.0, 15.0):
        pressure.sample(ms, memory, now)
    for size in range(1, 8):
        assert len(list(pressure.giving_way(idle(size), size))) == max(0, size - kept)


def test_the_p99_is_of_what_came_since_the_last_sample() -> None:
    sample = FirstTokenSample(most=200)
    assert sample.take_p99_ms() == 0
    for wait in range(1, 101):
        sample.note(wait)
    assert sample.take_p99_ms() == 99
    assert sample.take_p99_ms() == 0
    for wait in range(1000):
        sample.note(wait)
    assert sample.take_p99_ms() == 197
