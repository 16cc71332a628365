"""No loop that every token passes has grown by more than a tenth. Counted, not timed."""

from __future__ import annotations

import pytest

from benchmarks.hot_loops import LOOPS, SAVED, VERSION, Cost, Counted, measured, saved

_MOST = 1.1


@pytest.fixture(scope="module")
def costs() -> dict[str, Cost]:
    return measured()


@pytest.mark.parametrize("name", list(LOOPS))
def test_a_token_costs_no_more_than_a_tenth_above_what_it_did(costs: dict[str, Cost], name: str) -> None:
    before = saved()
    if before is None:
        pytest.skip(f"no counts of {VERSION} in {SAVED.name}: python -m benchmarks.hot_loops --save")
    cost, measure = costs[name], before[name]
    why = f"{name}: {cost} where it was {measure}; if that is meant: python -m benchmarks.hot_loops --save"
    assert cost.bytecodes <= measure.bytecodes * _MOST, why
    assert cost.c_calls <= measure.c_calls * _MOST, why


def test_counts_are_the_same_in_each_run(costs: dict[str, Cost]) -> None:
    assert measured() == costs


def test_work_that_is_added_shows() -> None:
    def loop(more: int) -> int:
        with Counted() as count:
            for number in range(100):
                for _ in range(more):
                    abs(number)
        return count.bytecodes + count.c_calls

    # Bytecodes of this very frame are not seen: a trace begins with the next call.
    assert loop(2) - loop(1) == pytest.approx(loop(3) - loop(2))
    assert loop(2) > loop(1)
