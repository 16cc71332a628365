"""How long a connection lives, by what it carries and how it grows."""

from __future__ import annotations

import pytest

from services.edge.core.connection_life import Life, LifeRules, beats_until_dead

RULES = LifeRules(requests=3, growth_bytes_per_s=800_000, growth_samples=3)


def test_it_is_worn_out_by_the_last_request_it_may_carry() -> None:
    life = Life(RULES, now=10.0)
    assert life.used_at == 10.0
    for now in (11.0, 12.0):
        life.used(now, new=True)
    life.used(12.5, new=False)
    assert not life.worn_out, "what was resumed does not count"
    life.used(13.0, new=True)
    assert life.worn_out
    assert (life.requests, life.used_at) == (3, 13.0)


def test_without_a_limit_it_carries_any_number() -> None:
    life = Life(LifeRules(0, 0, 3), 0.0)
    for _ in range(100_000):
        life.used(1.0, new=True)
    assert not life.worn_out


def test_it_grows_too_fast_when_three_samples_in_a_row_say_so() -> None:
    life = Life(RULES, 0.0)
    held = 0
    for expected in (False, False, True, True):
        held += 4_000_000  # 0.8 MB/s over 5 s
        assert life.grows(held, 5.0) is expected
    assert not life.grows(held, 5.0)


@pytest.mark.parametrize("pause", [3_999_999, 0, -10_000_000])
def test_one_slower_sample_begins_the_count_again(pause: int) -> None:
    life = Life(RULES, 0.0)
    held = 20_000_000
    life.grows(held, 1000.0)
    for step in (4_000_000, 4_000_000, pause, 4_000_000, 4_000_000):
        held += step
        assert not life.grows(held, 5.0)
    assert life.grows(held + 4_000_000, 5.0)


def test_a_sample_that_came_late_counts_by_its_time() -> None:
    life = Life(RULES, 0.0)
    for number in range(1, 10):
        assert not life.grows(number * 4_000_000, 6.0)
    assert not life.grows(1_000_000_000, 0.0)


def test_growth_is_not_watched_at_zero() -> None:
    life = Life(LifeRules(3, 0, 1), 0.0)
    assert not life.grows(1_000_000_000, 5.0)


@pytest.mark.parametrize(
    ("missed", "period_s", "silent_s", "beats"),
    [(3, 15, 90, 3), (10, 15, 90, 6), (3, 60, 90, 1), (3, 15, 10, 1), (20, 0.2, 90, 20)],
)
def test_a_client_is_dead_after_so_many_beats_and_never_after_more_than_the_silence(
    missed: int, period_s: float, silent_s: float, beats: int
) -> None:
    assert beats_until_dead(missed, period_s, silent_s) == beats
