"""The budget of wrong answers holds whatever order questions come in: nothing that is served goes by what they were before."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.allowance import CREDIT, Allowance, stands_for
from services.cache.core.decide import Asked, Candidate, Outcome, decide
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.standing import Ledger, Standing
from services.cache.core.vetoes.text import Text

BUDGET = 0.01
OPTIONS = SemanticOptions("budget", True, BUDGET, 0.05, 0.3, False, ())
QUESTION, STORED = Text("How do I open the account?"), Text("How can I open the account?")
REQUESTS = 900

# What is asked at a moment: the similarity of the nearest entry, whether its answer is right, and which entry that is.
Order = Callable[[random.Random, int, float], tuple[float, bool, str]]


def turned(draw: random.Random, at: int, _: float) -> tuple[float, bool, str]:
    """Two thirds of the way all is right, then all is wrong, and each entry is new."""
    return 0.99, at < REQUESTS * 2 // 3, f"e{at}"


def one_trap(draw: random.Random, at: int, _: float) -> tuple[float, bool, str]:
    """From a moment on every second question lies near to the same few wrong entries."""
    trap = at > REQUESTS // 2 and at % 2 == 0
    return 0.98 + 0.02 * draw.random(), not trap, f"trap{at % 6}" if trap else f"e{at}"


def blocks(draw: random.Random, at: int, _: float) -> tuple[float, bool, str]:
    """Subjects one after the other, of which every fifth is wrong throughout."""
    return 1 - 0.05 * draw.random(), at // 60 % 5 != 4, f"e{at // 10}"


def above_the_threshold(draw: random.Random, at: int, threshold: float) -> tuple[float, bool, str]:
    """An enemy who knows the threshold: just above it all is wrong, at the top all is right."""
    near = at % 3 == 0 and math.isfinite(threshold)
    return (min(threshold + 0.001, 1.0), False, f"e{at}") if near else (0.999, True, f"r{at}")


def waits_for_room(draw: random.Random, at: int, _: float) -> tuple[float, bool, str]:
    """Right until least is compared, then wrong for a while, again and again."""
    return 0.997, at % 300 < 250, f"e{at}"


def wrong_share(order: Order, seed: int) -> float:
    """Wrong answers served per question, as the service decides, draws and learns."""
    draw, standing, wrong = random.Random(seed), Standing(OPTIONS, Ledger()), 0
    for at in range(REQUESTS):
        similarity, right, entry = order(draw, at, standing.threshold.value)
        asked = Asked(str(at).encode(), QUESTION, draw.random())
        decision = decide([Candidate(entry, entry.encode(), STORED, similarity)], asked, standing.policy)
        standing.decided(decision)
        wrong += decision.outcome is Outcome.SERVE and not right
        for comparison in decision.compare:
            standing.compared(comparison, right)
            if decision.outcome is Outcome.AUDIT and not right:
                standing.wrong(entry, asked.key, entry.encode(), similarity)
    return wrong / REQUESTS


@pytest.mark.parametrize("order", [turned, one_trap, blocks, above_the_threshold, waits_for_room])
def test_in_whatever_order_questions_come_the_budget_is_kept_on_the_mean_and_nearly_so_each_time(order: Order) -> None:
    shares = [wrong_share(order, seed) for seed in range(4)]
    assert mean(shares) <= BUDGET + CREDIT / REQUESTS
    assert max(shares) <= 2.5 * BUDGET


@given(
    st.floats(0.001, 0.1),
    st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.floats(0.0, 1.0)), max_size=200),
)
def test_no_order_of_questions_and_findings_overdraws_the_account(
    budget: float, steps: list[tuple[int, bool, float]]
) -> None:
    """So what is debited, which is in expectation what was served wrongly, is within the budget at any moment."""
    allowance, requests, debited = Allowance(budget), 0, 0.0
    for pause, found_wrong, more in steps:
        for _ in range(pause):
            allowance.request()
        requests += pause
        # Whoever asks for more comparisons may: a setting, an entry that is due.
        share = min(1.0, allowance.audit + more)
        if found_wrong:
            allowance.found_wrong(share)
            debited += stands_for(share)
        assert allowance.balance >= -1e-9
        assert debited <= CREDIT + budget * requests + 1e-6
