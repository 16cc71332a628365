"""What a decision takes does not grow with the number of workers, counted in steps of the interpreter: no machine is in that."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from benchmarks.decision import World
from services.router.core.fleet import PART
from services.router.core.ring import Ring
from services.router.core.strategy import StrategyName

_DECISIONS = 40


def _steps(work: Callable[[], None]) -> int:
    """Instructions of the interpreter that `work` takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _steps_a_decision(name: StrategyName, workers: int, tenants: int) -> float:
    world = World(name, workers, tenants)
    for _ in range(200):
        world.decide()

    def decide() -> None:
        for _ in range(_DECISIONS):
            world.decide()

    return _steps(decide) / _DECISIONS


@pytest.mark.parametrize("name", ["ring", "least_loaded", "prefix"])
def test_a_decision_among_a_thousand_workers_and_tenants_takes_as_long_as_among_a_hundred(name: StrategyName) -> None:
    few, many = _steps_a_decision(name, 100, 100), _steps_a_decision(name, 1000, 1000)
    # The tree of least loads is three levels higher, and a walk past full workers may be somewhat longer.
    assert many < 2 * few
    assert many < 10_000


def test_a_worker_that_comes_costs_its_own_points_and_not_all() -> None:
    def steps(workers: int) -> int:
        names = {f"w{number}": 1.0 for number in range(workers)}
        ring = Ring(names, vnodes=160)
        names["new"] = 1.0
        return _steps(lambda: ring.adopt(names))

    assert steps(1000) < 1.5 * steps(100)


def test_a_look_at_a_thousand_workers_lets_decisions_in_between() -> None:
    world = World("ring", 1000, 10)
    world.decide()
    parts, decided = world.core.fleet.adopting(world.workers), 0
    longest = 0

    def step() -> None:
        nonlocal decided
        next(parts, None)
        decided += 1

    while decided <= 1000 // PART:
        longest = max(longest, _steps(step))
        world.decide()
    assert next(parts, "done") == "done"
    whole = _steps(lambda: world.core.fleet.adopt(world.workers))
    assert longest < whole / 20
