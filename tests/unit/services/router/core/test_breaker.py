"""One breaker through its states, and how its threshold moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.core.breaker import RAMP, Breaker, State, Waits, Window
from services.router.core.threshold import DEFAULT_RULES, Threshold
from streamway.tenancy import TierName

WAITS = Waits()
GOLD = DEFAULT_RULES[TierName.GOLD]


def _note(breaker: Breaker, now: float, *failed: bool) -> None:
    for one in failed:
        breaker.note(GOLD.start, 10, WAITS, now, 0.5, failed=one)


def _opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(GOLD.window_s)
    _note(breaker, now, *[False] * 9, True)
    assert breaker.state is State.OPEN
    return breaker


def test_fewer_than_ten_calls_open_nothing() -> None:
    breaker = Breaker(60)
    _note(breaker, 0, *[True] * 9)
    assert not breaker.bars(0)
    _note(breaker, 0, True)
    assert breaker.bars(0)


def test_a_rate_at_the_threshold_opens_nothing_and_one_above_it_does() -> None:
    breaker = Breaker(60)
    _note(breaker, 0, *[False] * 19, True)
    assert not breaker.bars(0)
    _note(breaker, 0, True)
    assert breaker.bars(0)


def test_failures_older_than_the_window_are_forgotten() -> None:
    breaker = Breaker(60)
    _note(breaker, 0, *[True] * 9)
    _note(breaker, 61, *[False] * 20, True)
    assert breaker.state is State.CLOSED


@given(st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60))
def test_a_window_counts_what_came_within_it(steps: list[tuple[float, bool]]) -> None:
    window, now = Window(60), 0.0
    seen: list[tuple[float, bool]] = []
    for step, failed in steps:
        now += step
        window.note(now, failed=failed)
        seen.append((now, failed))
        # Parts of 5 s: what is younger than 55 s counts surely, what is older than 60 s surely not.
        assert sum(now - at < 55 for at, _ in seen) <= window.calls <= sum(now - at < 60 for at, _ in seen)
        assert sum(bad and now - at < 55 for at, bad in seen) <= window.failures <= window.calls


def test_d5_half_open_lets_one_then_two_then_four_in_and_closes_after_three() -> None:
    breaker = _opened()
    assert breaker.bars(4.9)
    assert not breaker.bars(5.0)
    first = breaker.placed(5.0)
    assert first
    assert breaker.bars(5.0)
    breaker.probed(first, False, WAITS, 6.0, 0.5)
    second, third = breaker.placed(6.0), breaker.placed(6.0)
    assert second
    assert third
    assert breaker.bars(6.0)
    breaker.probed(second, False, WAITS, 7.0, 0.5)
    more = [breaker.placed(7.0) for _ in range(3)]
    assert all(more)
    assert breaker.probing == 4
    assert breaker.bars(7.0)
    breaker.probed(third, False, WAITS, 8.0, 0.5)
    assert breaker.state is State.CLOSED
    assert not breaker.bars(8.0)


def test_d5_each_reopening_waits_twice_as_long_up_to_the_limit() -> None:
    breaker, waits, now = _opened(), [], 0.0
    for _ in range(8):
        waits.append(breaker.until - now)
        now = breaker.until
        breaker.probed(breaker.placed(now), True, WAITS, now, 0.5)
    assert waits == [5, 10, 20, 40, 80, 120, 120, 120]


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_d5_jitter_moves_a_wait_by_a_fifth_at_most(openings: int, draw: float) -> None:
    whole = min(120.0, 5.0 * 2 ** min(openings - 1, 10))
    assert 0.8 * whole <= WAITS.wait_s(openings, draw) <= 1.2 * whole


def test_a_probe_that_says_nothing_only_makes_room() -> None:
    breaker = _opened()
    breaker.probed(breaker.placed(5), None, WAITS, 6, 0.5)
    assert breaker.state is State.HALF_OPEN
    assert breaker.successes == 0
    assert not breaker.bars(6)


def test_what_ends_of_an_earlier_round_says_nothing_of_this_one() -> None:
    breaker = _opened()
    breaker.probed(breaker.placed(5), False, WAITS, 5, 0.5)
    slow, quick = breaker.placed(5), breaker.placed(5)
    breaker.probed(quick, True, WAITS, 6, 0.5)
    assert breaker.until == 16
    assert breaker.placed(16) == 0, "the slow one still takes the only place"
    breaker.probed(slow, False, WAITS, 17, 0.5)
    assert breaker.successes == 0
    assert breaker.placed(17)


def test_one_that_was_closed_for_longer_than_it_waited_is_trusted_again() -> None:
    breaker = _opened()
    breaker.probed(breaker.placed(5), True, WAITS, 5, 0.5)
    for _ in RAMP:
        breaker.probed(breaker.placed(15), False, WAITS, 15, 0.5)
    assert breaker.state is State.CLOSED
    _note(breaker, 24, *[False] * 9, True)
    assert breaker.until - 24 == 20, "too soon"
    for _ in RAMP:
        breaker.probed(breaker.placed(44), False, WAITS, 44, 0.5)
    _note(breaker, 65, *[False] * 9, True)
    assert breaker.until - 65 == 5


def test_what_another_router_opened_holds_until_the_later_end() -> None:
    breaker = Breaker(60)
    breaker.learn(2, 10, 0)
    assert breaker.bars(9)
    breaker.learn(1, 5, 0)
    assert breaker.until == 10
    breaker.learn(3, 20, 0)
    assert breaker.until == 20
    breaker.probed(breaker.placed(20), True, WAITS, 20, 0.5)
    assert breaker.until - 20 == 40, "the next opening goes on from theirs"


def test_what_another_router_closed_is_closed_unless_it_has_opened_again_since() -> None:
    breaker = Breaker(60)
    breaker.learn_closed(3, 0)
    assert (breaker.state, breaker.openings) == (State.CLOSED, 0), "it was not open"
    breaker.learn(2, 10, 0)
    breaker.learn_closed(1, 1)
    assert breaker.state is State.OPEN, "closed before it opened a second time"
    probe = breaker.placed(10)
    breaker.learn_closed(2, 11)
    assert breaker.state is State.CLOSED
    breaker.probed(probe, True, WAITS, 12, 0.5)
    assert (breaker.state, breaker.probing) == (State.CLOSED, 0), "a late probe only makes room"
    _note(breaker, 13, *[True] * 10)
    assert breaker.until - 13 == 20, "too soon to be forgotten: the third waits four times as long"


@given(
    st.lists(
        st.tuples(st.sampled_from(["place", "good", "bad", "none", "note", "learn"]), st.floats(0, 30)), max_size=80
    )
)
def test_d5_there_are_never_more_probes_than_the_ramp_allows(steps: list[tuple[str, float]]) -> None:
    breaker, now, flying = Breaker(60), 0.0, list[int]()
    for step, wait in steps:
        now += wait
        before = breaker.state
        match step:
            case "place":
                if not breaker.bars(now) and (round_ := breaker.placed(now)):
                    flying.append(round_)
                    assert breaker.probing <= RAMP[breaker.successes]
            case "note":
                _note(breaker, now, *[True] * 10)
            case "learn":
                breaker.learn(1, wait, now)
            case outcome:
                if flying:
                    breaker.probed(flying.pop(0), {"good": False, "bad": True, "none": None}[outcome], WAITS, now, 0.5)
        assert breaker.probing == len(flying) >= 0
        assert (before, breaker.state) != (State.CLOSED, State.HALF_OPEN)
        assert (before, breaker.state) != (State.OPEN, State.CLOSED)


@given(st.sampled_from(list(TierName)), st.lists(st.tuples(st.floats(0, 400), st.booleans()), max_size=200))
def test_a_threshold_stays_between_half_and_twice_its_start(tier: TierName, calls: list[tuple[float, bool]]) -> None:
    rule = DEFAULT_RULES[tier]
    threshold, now = Threshold(rule, 1, 0.0), 0.0
    for step, failed in calls:
        now += step
        threshold.note(now, failed=failed)
        assert rule.start / 2 <= threshold.value <= 2 * rule.start


@pytest.mark.parametrize(
    ("failures", "aim"), [(0, 0.025), (2, 0.04), (50, 0.1)], ids=["at least half", "twice the mean", "at most twice"]
)
def test_a_window_moves_the_threshold_by_the_formula(failures: int, aim: float) -> None:
    threshold = Threshold(GOLD, 10, 0.0)
    for number in range(100):
        threshold.note(1.0, failed=number < failures)
    assert threshold.value == GOLD.start
    threshold.note(60.0, failed=False)
    assert threshold.value == pytest.approx(0.92 * 0.05 + 0.08 * aim)


def test_a_window_with_few_calls_moves_no_threshold() -> None:
    threshold = Threshold(GOLD, 10, 0.0)
    for _ in range(9):
        threshold.note(1.0, failed=True)
    threshold.note(60.0, failed=False)
    assert threshold.value == GOLD.start
