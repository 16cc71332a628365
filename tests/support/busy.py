"""A process that is as busy as a test says."""

from __future__ import annotations

import pytest

from streamway.runtime.demand import Demand


def wanting(share: float) -> Demand:
    """The demand of a thread that has wanted this share for a long time, and does not change."""
    times = iter([(0.0, 0.0), (1000.0, 1000.0 * share)])
    now, wanted = next(times)

    def clock() -> float:
        return now

    demand = Demand(clock, lambda: wanted)
    now, wanted = next(times)
    assert demand.share == pytest.approx(share)
    return demand
