"""Strategies and tiers in virtual time: python -m benchmarks.simulate. With --live also on a mesh of processes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, get_args

from benchmarks.simulate import tables
from benchmarks.simulate.live import run_live
from benchmarks.simulate.page import put
from benchmarks.simulate.plots import plot_overload, plot_strategies
from benchmarks.simulate.results import Outcome, Summary, quantile, summarize
from benchmarks.simulate.scenario import AFFINITY, JOIN, LIVE, LIVE_OVERLOAD, OVERLOAD, Scenario
from benchmarks.simulate.world import World
from services.router.core.strategy import StrategyName, StrategyOptions

_RESULTS: Final = Path(__file__).parent.parent / "results"
_DOCS: Final = Path(__file__).parents[2] / "docs"
_PAGE: Final = _DOCS / "simulation.md"
_STRATEGIES: Final = get_args(StrategyName)
_DEPTHS: Final = (4, 8, 16, 32)
_AHEAD: Final = (0, 1, 2, 4)
_LOAD: Final = 0.7
_LIVE: Final = ("strategies", "overload")


def main() -> None:
    """Prints tables, writes results, pictures and the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--live",
        nargs="*",
        choices=_LIVE,
        help="instead: these scenarios, or all, simulated and on a mesh of processes",
    )
    parser.add_argument("--write", action="store_true", help="write benchmarks/results and docs/simulation.md")
    args = parser.parse_args()
    write: bool = args.write
    if args.live is not None:
        runs = {"strategies": _live_strategies, "overload": _live_overload}
        for name in args.live or _LIVE:
            _keep(f"simulation-live-{name}", runs[name](args.seed, write), write)
        return
    began = time.monotonic()
    found = {
        "strategies": _strategies(args.seed, write),
        "joins": _joins(args.seed, write),
        "overload": _overload(args.seed, write),
    }
    print(f"\nsimulated in {time.monotonic() - began:.0f} s")
    _keep("simulation", found, write)


def _keep(name: str, found: dict[str, Any], write: bool) -> None:
    if write:
        _RESULTS.mkdir(exist_ok=True)
        (_RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _show(name: str, title: str, lines: Sequence[str], write: bool) -> None:
    print(f"\n{title}\n")
    print("\n".join(lines), flush=True)
    if write:
        put(_PAGE, name, lines)


def capacity(scenario: Scenario) -> float:
    """Turns a second that the mesh finishes when far more are asked, without a queue to speak of before it starts."""
    flooded = World(replace(scenario, turns_per_s=400.0, duration_s=20, joins_at_s=0), fair=False)
    return sum(5 < one.first_at < 20 for one in flooded.run()) / 15


def at_load(scenario: Scenario, load: float) -> Scenario:
    """The same at a share of what the mesh finishes."""
    return replace(scenario, turns_per_s=round(load * capacity(scenario), 1))


def _strategies(seed: int, write: bool) -> dict[str, Any]:
    scenario = at_load(replace(AFFINITY, seed=seed), _LOAD)
    rows: dict[str, Summary] = {}
    for name in _STRATEGIES:
        world = World(scenario, name)
        rows[name] = summarize(world.run(), world.workers)
    _show("strategies", _title(scenario), tables.of_strategies(rows), write)
    if write:
        plot_strategies(rows, _DOCS / "simulation-strategies.png")
    return {name: asdict(row) for name, row in rows.items()}


def _joins(seed: int, write: bool) -> dict[str, Any]:
    scenario = at_load(replace(JOIN, seed=seed), _LOAD)
    rows = {}
    paces = (("(none comes)", 10.0, False), ("1", 1.0, True), ("10 (default)", 10.0, True), ("any", 1e5, True))
    for name, per_s, comes in paces:
        asked = scenario if comes else replace(scenario, joins_at_s=0)
        rows[name] = _join(World(asked, options=StrategyOptions(moves_per_s=per_s)).run(), scenario)
    _show(
        "joins",
        f"{_title(scenario)}; after {scenario.joins_at_s:.0f} s one more worker comes",
        tables.of_joins(rows),
        write,
    )
    return rows


def _join(outcomes: list[Outcome], scenario: Scenario) -> dict[str, float]:
    """Who moved to the worker that came, and what the others noticed: 20 s before it, and after."""
    came, at = f"adapter-{scenario.workers}", scenario.joins_at_s
    known = {one.session for one in outcomes if one.asked_at < at}
    there = {one.session for one in outcomes if one.worker == came} & known
    soon = {one.session for one in outcomes if one.worker == came and one.asked_at < at + 10} & known
    others = [one for one in outcomes if one.session not in there and one.first_at >= 0]
    return {
        "sessions": len(known),
        "moved_10s": len(soon),
        "moved": len(there),
        "p99_before_ms": quantile((one.wait_s * 1000 for one in others if at - 20 < one.asked_at < at), 0.99),
        "p99_after_ms": quantile((one.wait_s * 1000 for one in others if at < one.asked_at < at + 20), 0.99),
    }


def _overload(seed: int, write: bool) -> dict[str, Any]:
    scenario = at_load(replace(OVERLOAD, seed=seed), 2.0)
    pairs, arms = {}, []
    for depth in _DEPTHS:
        asked = replace(scenario, preload_depth=depth)
        pairs[depth] = (_tiers(asked, fair=False), _tiers(asked, fair=True))
        arms += [(f"depth {depth}: in order", pairs[depth][0]), (f"depth {depth}: by tiers", pairs[depth][1])]
    told = "gold asks 20 %, silver 30 %, bronze 50 %; a lane holds 2 × depth in both arms"
    _show("overload", f"{_title(scenario)}; {told}", tables.of_tiers(arms), write)
    ahead = []
    for depth in _DEPTHS[0], _DEPTHS[2]:
        ahead.append((f"depth {depth}: in order", pairs[depth][0]))
        for slots in _AHEAD:
            found = _tiers(replace(scenario, preload_depth=depth, slots_ahead=slots), fair=True)
            ahead.append((f"depth {depth}: {slots} of 16 slots ahead", found))
    _show("ahead", "The same with more and fewer slots kept ahead", tables.of_tiers(ahead), write)
    if write:
        plot_overload(pairs, _DOCS / "simulation-overload.png")
    return {name: asdict(row) for name, row in [*arms, *ahead]}


def _tiers(scenario: Scenario, *, fair: bool) -> Summary:
    world = World(scenario, fair=fair)
    return summarize(world.run(), world.workers)


def _live_strategies(seed: int, write: bool) -> dict[str, Any]:
    scenario = at_load(replace(LIVE, seed=seed), _LOAD)
    rows: dict[str, Summary] = {}
    names: tuple[StrategyName, ...] = ("ring", "least_loaded")
    for name in names:
        world = World(scenario, name)
        rows[f"{name}, simulated"] = summarize(world.run(), world.workers)
        rows[f"{name}, live"] = summarize(run_live(scenario, name), world.workers)
    _show("live-strategies", _title(scenario), tables.of_strategies(rows), write)
    return {name: asdict(row) for name, row in rows.items()}


def _live_overload(seed: int, write: bool) -> dict[str, Any]:
    scenario = at_load(replace(LIVE_OVERLOAD, seed=seed), 2.0)
    arms = [
        ("simulated: in order", _tiers(scenario, fair=False)),
        ("simulated: by tiers", _tiers(scenario, fair=True)),
    ]
    workers = [f"adapter-{number}" for number in range(scenario.workers)]
    for name, fair in (("live: in order", False), ("live: by tiers", True)):
        arms.append((name, summarize(run_live(scenario, "ring", fair=fair), workers)))
    _show("live-overload", _title(scenario), tables.of_tiers(arms), write)
    return {name: asdict(row) for name, row in arms}


def _title(scenario: Scenario) -> str:
    return (
        f"{scenario.name}: {scenario.workers} workers of {scenario.engine.slots} slots, {scenario.sessions} sessions,"
        f" {scenario.turns_per_s} turns a second for {scenario.duration_s:.0f} s"
    )


if __name__ == "__main__":
    main()
