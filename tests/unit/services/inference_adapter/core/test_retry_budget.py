"""How many calls may be made again."""

from __future__ import annotations

import pytest

from services.inference_adapter.core.retry_budget import Counts, RetryBudget, window_of

NOTHING = Counts(0, 0)


@pytest.mark.parametrize(("calls", "retries", "allowed"), [(100, 10, True), (100, 11, False), (1000, 100, True)])
def test_a_tenth_of_the_calls_may_be_made_again(calls: int, retries: int, allowed: bool) -> None:
    assert RetryBudget().allows(NOTHING, Counts(calls, retries), 0.5) is allowed


def test_a_few_may_in_any_case() -> None:
    assert [RetryBudget().allows(NOTHING, Counts(1, number), 0.0) for number in (1, 2, 3, 4)] == [
        True,
        True,
        True,
        False,
    ]
    assert not RetryBudget(floor=0, share=0.0).allows(NOTHING, Counts(1000, 1), 0.0)


def test_the_window_before_counts_less_and_less() -> None:
    before = Counts(100, 10)
    assert not RetryBudget().allows(before, Counts(0, 1), 0.0)
    assert RetryBudget().allows(before, Counts(0, 1), 0.8)
    # What was called then is not forgotten at the border either.
    assert RetryBudget().allows(Counts(100, 0), Counts(0, 9), 0.1)
    assert not RetryBudget().allows(Counts(100, 0), Counts(0, 9), 0.9)


def test_a_window_has_ten_seconds() -> None:
    assert window_of(125.0) == (12, 0.5)
    assert window_of(120.0) == (12, 0.0)
