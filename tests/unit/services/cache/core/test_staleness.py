import random

from services.cache.core.refinement import MOST, Seen
from services.cache.core.staleness import BORDERS, Staleness

NOW = 10_000


def learned(stale_right: float, fresh_right: float) -> Staleness:
    """After comparisons with entries that were used a moment ago, and with others."""
    draw, staleness = random.Random(1), Staleness()
    staleness.used("fresh", NOW)
    for _ in range(300):
        similarity = 0.85 + 0.15 * draw.random()
        for entry, share in (("fresh", fresh_right), ("stale", stale_right)):
            staleness.take(entry, NOW, Seen(similarity, draw.random() < share * (similarity - 0.85) / 0.15))
    return staleness


def test_where_nothing_was_compared_nothing_is_shifted():
    assert Staleness().shift("stale", NOW) == 0.0


def test_what_nobody_has_needed_for_long_counts_for_less_where_it_is_wrong_more_often():
    staleness = learned(stale_right=0.3, fresh_right=1.0)
    assert -MOST <= staleness.shift("stale", NOW) < -0.01
    assert 0.01 < staleness.shift("fresh", NOW) <= MOST
    assert staleness.shift("fresh", NOW + BORDERS[-1] + 1) == staleness.shift("stale", NOW)
    fresh = staleness.shift("fresh", NOW)
    staleness.used("stale", NOW)
    assert staleness.shift("stale", NOW) == fresh


def test_where_age_says_nothing_it_changes_next_to_nothing():
    staleness = learned(stale_right=0.8, fresh_right=0.8)
    for entry in ("fresh", "stale"):
        assert abs(staleness.shift(entry, NOW)) < 0.01


def test_it_goes_on_where_another_was():
    one, other = learned(stale_right=0.3, fresh_right=1.0), Staleness()
    other.restore(*one.kept(NOW))
    for entry in ("fresh", "stale"):
        assert abs(other.shift(entry, NOW) - one.shift(entry, NOW)) < 0.003
    assert set(one.kept(NOW + 10 * BORDERS[-1])[2]) == set()
