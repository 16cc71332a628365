"""What comparisons with one entry say of it."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.refinement import MOST, Curve, Refinement, Seen, fitted, shift

_seen = st.builds(Seen, st.floats(0, 1), st.booleans())
_curves = st.builds(Curve, st.floats(0.5, 1.0), st.floats(5, 200))


@given(st.lists(_seen, max_size=64), _curves)
def test_a_shift_is_bounded_and_does_not_depend_on_the_order(seen: list[Seen], curve: Curve) -> None:
    found = shift(seen, curve)
    assert -MOST <= found <= MOST
    assert math.isclose(found, shift(seen[::-1], curve), abs_tol=1e-6)


@given(st.lists(_seen, max_size=20), _curves, st.floats(0, 1))
def test_a_right_answer_never_lowers_an_entry_and_a_wrong_one_never_raises_it(
    seen: list[Seen], curve: Curve, similarity: float
) -> None:
    before = shift(seen, curve)
    assert shift([*seen, Seen(similarity, True)], curve) >= before - 1e-6
    assert shift([*seen, Seen(similarity, False)], curve) <= before + 1e-6


@given(_curves)
def test_of_an_unknown_entry_nothing_is_said(curve: Curve) -> None:
    assert shift([], curve) == 0
    made = Refinement()
    made.curve = curve
    assert made.shift("e") == 0


@given(st.lists(_seen, max_size=80))
def test_a_curve_rises_or_there_is_none(seen: list[Seen]) -> None:
    curve = fitted(seen)
    assert curve is None or (curve.g >= 5 and math.isfinite(curve.t))


def test_the_curve_is_the_one_that_made_the_comparisons() -> None:
    draw = random.Random(1)
    points = [draw.uniform(0.8, 1.0) for _ in range(4_000)]
    curve = fitted([Seen(s, draw.random() < 1 / (1 + math.exp(-60 * (s - 0.9)))) for s in points])
    assert curve is not None
    assert abs(curve.t - 0.9) < 0.01
    assert 45 < curve.g < 75


def test_an_entry_that_is_wrong_where_others_are_right_asks_for_more() -> None:
    made, draw = Refinement(), random.Random(2)
    for number in range(400):
        s = draw.uniform(0.85, 1.0)
        made.take(f"e{number % 50}", Seen(s, draw.random() < 1 / (1 + math.exp(-60 * (s - 0.92)))))
    for _ in range(3):
        made.take("trap", Seen(0.97, False))
        made.take("wide", Seen(0.90, True))
    assert made.shift("trap") < -0.005
    assert made.shift("wide") > 0.005
    assert abs(made.shift("e1")) < MOST
