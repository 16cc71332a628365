"""How long tokens wait for others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.flush_window import FlushWindow

LEAST, MOST = 0.02, 0.1


def after(*lateness: float) -> FlushWindow:
    window = FlushWindow(LEAST, MOST)
    for late_s in lateness:
        window.ticked(late_s)
    return window


def test_an_idle_process_adds_no_wait() -> None:
    assert FlushWindow(LEAST, MOST).seconds == LEAST
    assert after(*[0.001] * 100).seconds == LEAST
    assert after(-1.0, 0.0).seconds == LEAST


def test_a_late_one_waits_longer_until_it_has_caught_up() -> None:
    window = after(*[0.01] * 50)
    assert window.seconds == pytest.approx(LEAST + 4 * 0.008, rel=0.01)
    for _ in range(50):
        window.ticked(0.0)
    assert window.seconds == LEAST


def test_one_late_tick_changes_little() -> None:
    assert after(0.03).seconds < 2.2 * LEAST


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50), st.floats(0, 10))
def test_never_outside_its_bounds_and_never_shorter_for_more_lateness(before: list[float], late_s: float) -> None:
    window, later = after(*before, late_s), after(*before, late_s + 0.01)
    assert LEAST <= window.seconds <= later.seconds <= MOST


def test_a_bound_below_the_usual_wait_switches_it_off() -> None:
    window = FlushWindow(LEAST, 0.001)
    window.ticked(5.0)
    assert window.seconds == LEAST
