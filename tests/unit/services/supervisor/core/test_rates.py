"""Rates of counters that are looked at now and then."""

from __future__ import annotations

from services.supervisor.core.rates import Rates


def test_a_rate_needs_two_looks_and_spans_at_most_five_seconds() -> None:
    rates = Rates()
    assert rates.look(0.0, {"w": 100}) == {"w": None}
    assert rates.look(2.0, {"w": 150}) == {"w": 25.0}
    assert rates.look(4.0, {"w": 150, "new": 7}) == {"w": 12.5, "new": None}
    assert rates.look(6.0, {"w": 350, "new": 7}) == {"w": 50.0, "new": 0.0}, "the look at 0.0 is too old"


def test_a_process_that_began_anew_has_no_rate_until_it_was_seen_twice() -> None:
    rates = Rates()
    rates.look(0.0, {"w": 100})
    assert rates.look(1.0, {"w": 3}) == {"w": None}
    assert rates.look(7.0, {"w": 5}) == {"w": None}
    assert rates.look(8.0, {"w": 15}) == {"w": 10.0}
