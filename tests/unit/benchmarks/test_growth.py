"""The models of growth: that a fit gives back what the data was made of, and says how far it is off."""

from __future__ import annotations

import pytest

from benchmarks.growth.fits import Held, fit_bytes, fit_held, fit_rate


def test_the_rate_of_one_of_n_streams_is_found_and_what_all_get_at_most() -> None:
    fitted = fit_rate([(n, 200 / (1 + 0.01 * n)) for n in (10, 50, 100, 400, 800)])
    assert fitted.r0 == pytest.approx(200, rel=0.01)
    assert fitted.k == pytest.approx(0.01, rel=0.01)
    assert fitted.r_squared > 0.9999
    assert fit_rate([(10, 50.0), (100, 180.0), (400, 20.0)]).r_squared < 0.9


def test_bytes_of_a_task_are_found_by_relative_error() -> None:
    fitted = fit_bytes([(1000, 23e6), (3000, 63e6), (5000, 103e6)])
    assert (fitted.base, fitted.each) == (pytest.approx(3e6), pytest.approx(20e3))
    bent = fit_bytes([(1000, 20e6), (3000, 60e6), (5000, 140e6)])
    assert max(abs(bent(n) / m - 1) for n, m in ((1000, 20e6), (3000, 60e6), (5000, 140e6))) > 0.03


def test_memory_over_time_is_rate_logarithm_and_one_step() -> None:
    made = Held(900.0, 2000.0, 5000.0, 30.0, 1.0)
    points = [(rate, float(t), made(rate, float(t))) for rate in (0.5, 2.0, 5.0) for t in range(0, 90, 2)]
    fitted = fit_held(points)
    assert fitted.after_s == 30.0
    assert (fitted.alpha, fitted.beta, fitted.gamma) == (pytest.approx(900), pytest.approx(2000), pytest.approx(5000))
    assert fitted.r_squared > 0.9999
