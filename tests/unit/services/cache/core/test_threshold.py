import math
import random

import pytest

from services.cache.core.labels import Label, Row
from services.cache.core.threshold import CLOSED, Budget, PooledThreshold, Threshold, static, weighted_bound


@pytest.mark.parametrize(
    ("configured", "multilingual", "expected"),
    [
        (None, True, Threshold(0.92, "default")),
        (None, False, Threshold(0.87, "default")),
        (0.0, True, Threshold(0.0, "configured")),
        (1.0, False, Threshold(1.0, "configured")),
    ],
)
def test_zero_is_a_threshold_and_none_is_the_encoders_default(configured, multilingual, expected):
    assert static(configured, multilingual=multilingual) == expected


@pytest.mark.parametrize(("count", "exact"), [(0, 2.303), (1, 3.890), (2, 5.322), (5, 9.275), (20, 27.045)])
def test_with_equal_weights_the_bound_is_that_of_a_poisson_count(count, exact):
    assert weighted_bound(count, count, 1.0, 0.90) == pytest.approx(exact, rel=0.011)
    assert weighted_bound(20 * count, 400 * count, 20.0, 0.90) == pytest.approx(20 * exact, rel=0.011)


def test_what_was_drawn_rarely_is_known_less_well():
    often, rarely = weighted_bound(10, 10, 1.0, 0.90), weighted_bound(10, 100, 1.0, 0.90)
    assert often < rarely
    assert weighted_bound(10, 10, 5.0, 0.90) > often


def test_the_bound_covers_what_it_bounds_nine_times_in_ten():
    """Wrong answers at a known rate, drawn with the shares of a beginning and of what follows."""
    draws = random.Random(3)
    shares = [0.75] * 200 + [0.2] * 500
    low = 0
    for _ in range(150):
        pooled = PooledThreshold(Budget(every=10**9))
        for share in shares:
            right = draws.random() >= 0.01
            if draws.random() < share:
                pooled.add(Label(0.999, right, share))
        low += pooled.curve()[0][2] < 0.01
    assert low / 150 <= 0.13


def labelled(*labels: tuple[float, bool], share: float = 1.0, budget: Budget | None = None) -> PooledThreshold:
    """A threshold that has taken these labels and then looked for its value."""
    pooled = PooledThreshold(budget)
    for similarity, right in labels:
        pooled.add(Label(similarity, right, share))
    return settle(pooled)


def settle(pooled: PooledThreshold) -> PooledThreshold:
    """Lets it look as often as there are steps."""
    for _ in range(50 * 80):
        pooled.request()
    return pooled


def test_it_starts_where_it_is_told_until_there_are_enough_labels():
    assert PooledThreshold().threshold == Threshold(0.95, "starting", audit=0.75)
    assert labelled(*[(0.7, True)] * 59).threshold == Threshold(0.95, "starting", None, 59, 0.75)


def test_it_looks_again_every_fifty_requests():
    pooled = PooledThreshold()
    for _ in range(400):
        pooled.add(Label(0.99, True, 1.0))
    for _ in range(49):
        pooled.request()
    assert pooled.threshold.source == "starting"
    pooled.request()
    assert pooled.threshold.source == "controlled"


def test_so_many_clean_labels_are_enough_for_a_budget_of_one_percent_as_its_bound_says():
    assert labelled(*[(0.8, True)] * 225).threshold.source == "starting"
    found = labelled(*[(0.8, True)] * 235).threshold
    assert (found.value, found.source) == (0.60, "controlled")
    assert found.bound is not None
    assert found.bound <= 0.01


def test_rare_labels_weigh_more_and_count_less():
    mixed = PooledThreshold()
    for _ in range(200):
        mixed.add(Label(0.8, True, 1.0))
    for _ in range(20):
        mixed.add(Label(0.97, True, 0.05))
    assert settle(mixed).threshold.source == "starting"  # the 220 labels are worth 44


def test_it_stops_above_what_was_wrong():
    found = labelled(*[(0.97, True)] * 500, *[(0.9, False)] * 20, *[(0.8, True)] * 480).threshold
    assert found.source == "controlled"
    assert found.value == pytest.approx(0.905)


def test_it_is_closed_when_even_the_highest_value_is_too_often_wrong():
    found = labelled(*[(0.999, False)] * 30, *[(0.8, True)] * 400).threshold
    assert found == Threshold(CLOSED, "closed", None, 430, 0.75)
    assert math.isinf(found.value)


def test_wrong_answers_at_the_start_raise_it_before_the_bound_is_known():
    found = labelled(*[(0.96, False)] * 3, *[(0.99, True)] * 57).threshold
    assert (found.value, found.source) == (pytest.approx(0.965), "starting")


def test_it_falls_by_one_step_a_search_and_rises_at_once():
    pooled = PooledThreshold()
    for _ in range(400):
        pooled.add(Label(0.8, True, 1.0))
    seen = []
    for _ in range(3):
        for _ in range(50):
            pooled.request()
        seen.append(pooled.threshold.value)
    assert seen == pytest.approx([0.95, 0.945, 0.94])
    for _ in range(20):
        pooled.add(Label(0.96, False, 1.0))
    for _ in range(50):
        pooled.request()
    assert pooled.threshold.value == pytest.approx(0.965)


def test_a_wrong_answer_among_the_compared_ones_takes_what_is_no_more_alike_out_of_service_at_once():
    pooled = PooledThreshold()
    pooled.add(Label(0.972, False, 0.75))
    assert (pooled.threshold.value, pooled.threshold.source) == (pytest.approx(0.975), "starting")
    pooled.add(Label(0.999, False, 0.75))
    assert pooled.threshold.source == "closed"


def test_fewer_would_be_hits_are_compared_the_more_is_known():
    pooled = PooledThreshold()
    shares = []
    for _ in range(4_000):
        pooled.add(Label(0.99, True, 0.5))
        pooled.request()
        shares.append(pooled.threshold.audit)
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (0.75, pytest.approx(0.066, abs=0.001))


def test_when_it_opens_again_it_opens_at_the_top():
    pooled = labelled(*[(0.999, False)] * 30, *[(0.8, True)] * 300, budget=Budget(window=300))
    for _ in range(30):
        pooled.add(Label(0.999, False, 1.0))
    for _ in range(50):
        pooled.request()
    assert pooled.threshold.source == "closed"
    for _ in range(300):
        pooled.add(Label(0.8, True, 1.0))
    for _ in range(50):
        pooled.request()
    assert (pooled.threshold.value, pooled.threshold.source) == (0.995, "controlled")


def test_it_never_falls_below_its_floor():
    found = labelled(*[(0.7, True)] * 500, budget=Budget(floor=0.8)).threshold
    assert found.value == pytest.approx(0.8)
    assert PooledThreshold(Budget(start=0.7, floor=0.9)).threshold.value == 0.9


def test_old_labels_leave_the_window():
    pooled = labelled(*[(0.99, False)] * 30, *[(0.99, True)] * 300, budget=Budget(window=300))
    assert pooled.threshold.source == "controlled"


ROW = Row((0.5,))


def test_a_doubted_pair_is_wrong_only_where_the_verifier_would_have_served_it():
    def found(probability: float | None) -> Threshold:
        pooled = PooledThreshold()
        for _ in range(400):
            pooled.add(Label(0.8, True, 1.0))
        for _ in range(30):
            pooled.add(Label(0.9, False, 1.0, ROW, probability))
        return settle(pooled).threshold

    assert found(None).value == found(0.89).value == 0.60
    assert found(0.9).value == pytest.approx(0.905)


def test_two_labels_of_one_request_stand_for_one_request():
    alone, beside = PooledThreshold(), PooledThreshold()
    for pooled in (alone, beside):
        for _ in range(200):
            pooled.add(Label(0.8, True, 1.0))
    for _ in range(100):
        beside.add(Label(0.9, True, 1.0, ROW, beside=True))
    assert alone.curve() == beside.curve()
    assert len(beside.labels) == 300


@pytest.mark.parametrize(("similarity", "share"), [(0.9, 0.0), (0.9, 1.1), (math.nan, 0.5), (0.9, math.nan)])
def test_a_label_without_sense_is_refused(similarity, share):
    with pytest.raises(ValueError, match="drawn with probability"):
        PooledThreshold().add(Label(similarity, True, share))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wrong", [0.01, 0.02])
def test_h2_the_budget_is_kept_over_a_stream(seed, wrong):
    """Questions near a wrong one up to 0.97, more often the less similar; audited and compared as the service does."""
    draws = random.Random(seed)
    pooled = PooledThreshold(Budget(wrong=wrong))
    served = mistakes = 0
    requests = 6_000
    for _ in range(requests):
        similarity = 1 - 0.4 * draws.random() ** 1.5
        right = draws.random() < 1 / (1 + math.exp(-60 * (similarity - 0.88)))
        threshold = pooled.threshold
        hit = similarity >= threshold.value
        share = max(0.05, threshold.audit) if hit else 0.30
        if draws.random() < share:
            pooled.add(Label(similarity, right, share))
        elif hit:
            served += 1
            mistakes += not right
        pooled.request()
    assert mistakes / requests <= wrong
    assert served / requests >= 0.1
    assert pooled.threshold.source == "controlled"
