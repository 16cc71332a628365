"""How busy a loop is."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamway.runtime.demand import Demand


class Thread:
    """A thread's time, and how much of it the thread wanted."""

    def __init__(self) -> None:
        self.now = self.wanted = 0.0
        self.looks = 0

    def clock(self) -> float:
        return self.now

    def wanted_s(self) -> float:
        self.looks += 1
        return self.wanted

    def passes(self, seconds: float, share: float) -> None:
        self.now += seconds
        self.wanted += seconds * share


def test_it_follows_what_the_thread_wants() -> None:
    thread = Thread()
    demand = Demand(thread.clock, thread.wanted_s)
    assert demand.share == 0.0
    for _ in range(10):
        thread.passes(0.1, 0.75)
        assert 0.0 <= demand.share <= 1.0
    assert demand.share == pytest.approx(0.75, abs=0.01)


def test_a_short_burst_says_less_than_a_long_one() -> None:
    short, long = Thread(), Thread()
    short_demand, long_demand = Demand(short.clock, short.wanted_s), Demand(long.clock, long.wanted_s)
    short.passes(0.05, 1.0)
    long.passes(0.5, 1.0)
    assert short_demand.share == pytest.approx(0.5)
    assert long_demand.share == pytest.approx(1.0)


def test_after_a_quiet_second_nothing_is_left_of_a_busy_one() -> None:
    thread = Thread()
    demand = Demand(thread.clock, thread.wanted_s)
    thread.passes(1.0, 1.0)
    assert demand.share == pytest.approx(1.0)
    thread.passes(1.0, 0.0)
    assert demand.share == pytest.approx(0.0)


def test_it_looks_no_more_than_twenty_times_a_second() -> None:
    thread = Thread()
    demand = Demand(thread.clock, thread.wanted_s)
    before = thread.looks
    for _ in range(1000):
        thread.passes(0.001, 1.0)
        assert 0.0 <= demand.share <= 1.0
    assert thread.looks - before <= 20


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(-1, 3)), max_size=30))
def test_always_a_share(steps: list[tuple[float, float]]) -> None:
    thread = Thread()
    demand = Demand(thread.clock, thread.wanted_s)
    for seconds, share in steps:
        thread.passes(seconds, share)
        assert 0.0 <= demand.share <= 1.0


def test_a_thread_that_never_rests_wants_all_of_it_whatever_else_runs() -> None:
    shares: list[float] = []

    def spin() -> None:
        demand = Demand()
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            pass
        shares.append(demand.share)

    spinning = threading.Thread(target=spin)
    spinning.start()
    # This thread only waits, so the other one has the interpreter to itself.
    spinning.join()
    assert shares[0] > 0.5
