"""Strategies and tiers in virtual time: python -m benchmarks.simulate. With --live the same turns on a mesh of processes."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, get_args

from benchmarks.simulate.live import run_live
from benchmarks.simulate.plots import plot_overload, plot_strategies
from benchmarks.simulate.results import Outcome, Summary, quantile, summarize
from benchmarks.simulate.scenario import AFFINITY, JOIN, LIVE, OVERLOAD, Scenario
from benchmarks.simulate.world import World
from services.router.core.strategy import StrategyName, StrategyOptions

_RESULTS: Final = Path(__file__).parent.parent / "results"
_DOCS: Final = Path(__file__).parents[2] / "docs"
_STRATEGIES: Final = get_args(StrategyName)
_DEPTHS: Final = (4, 8, 16, 32)
_LOAD: Final = 0.7


def main() -> None:
    """Prints tables, writes results and pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--live", action="store_true", help="instead: the scenario `live`, simulated and on a mesh of processes"
    )
    parser.add_argument("--write", action="store_true", help="write benchmarks/results and the pictures of docs/")
    args = parser.parse_args()
    if args.live:
        found: dict[str, Any] = {"live": _live(args.seed)}
    else:
        began = time.monotonic()
        strategies, joins, overload = _strategies(args.seed), _joins(args.seed), _overload(args.seed)
        print(f"\nsimulated in {time.monotonic() - began:.0f} s")
        found = {
            "strategies": {name: asdict(row) for name, row in strategies.items()},
            "joins": joins,
            "overload": {depth: [asdict(row) for row in rows] for depth, rows in overload.items()},
        }
        if args.write:
            plot_strategies(strategies, _DOCS / "simulation-strategies.png")
            plot_overload(overload, _DOCS / "simulation-overload.png")
    if args.write:
        _RESULTS.mkdir(exist_ok=True)
        name = "simulation-live" if args.live else "simulation"
        (_RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def capacity(scenario: Scenario) -> float:
    """Turns a second that the mesh finishes when far more are asked, without a queue to speak of before it starts."""
    flooded = World(replace(scenario, turns_per_s=400.0, duration_s=20, joins_at_s=0), fair=False)
    return sum(5 < one.first_at < 20 for one in flooded.run()) / 15


def at_load(scenario: Scenario, load: float) -> Scenario:
    """The same at a share of what the mesh finishes."""
    return replace(scenario, turns_per_s=round(load * capacity(scenario), 1))


def _strategies(seed: int) -> dict[str, Summary]:
    scenario = at_load(replace(AFFINITY, seed=seed), _LOAD)
    print(f"\n{_title(scenario)}\n")
    print(
        "| strategy | KV hits | first token p50 / p99 | sessions that moved | turns where the one before was | Jain |"
    )
    print("|---|---|---|---|---|---|")
    rows = {}
    for name in _STRATEGIES:
        world = World(scenario, name)
        row = rows[name] = summarize(world.run(), world.workers)
        print(_strategy_row(name, row))
    return rows


def _joins(seed: int) -> dict[str, dict[str, float]]:
    scenario = at_load(replace(JOIN, seed=seed), _LOAD)
    print(f"\n{_title(scenario)}; after {scenario.joins_at_s:.0f} s one more worker comes\n")
    print("| moves a second | sessions that moved there in 10 s / by the end | p99 of the others before / after, ms |")
    print("|---|---|---|")
    rows = {}
    for name, per_s, comes in (("none comes", 10.0, False), ("1", 1.0, True), ("10", 10.0, True), ("any", 1e5, True)):
        asked = scenario if comes else replace(scenario, joins_at_s=0)
        rows[name] = row = _join(World(asked, options=StrategyOptions(moves_per_s=per_s)).run(), scenario)
        print(
            f"| {name} | {row['moved_10s']:.0f} / {row['moved']:.0f} of {row['sessions']:.0f}"
            f" | {row['p99_before_ms']:.0f} / {row['p99_after_ms']:.0f} |"
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


def _overload(seed: int) -> dict[int, tuple[Summary, Summary]]:
    scenario = at_load(replace(OVERLOAD, seed=seed), 2.0)
    print(f"\n{_title(scenario)}; gold asks 20 %, silver 30 %, bronze 50 %; queues of 2 × depth in both arms\n")
    print(
        "| depth | arm | "
        + " | ".join(f"{tier.name} p95 / refused / tokens" for tier in scenario.tiers)
        + " | gold p95 |"
    )
    print("|---|---|---|---|---|---|")
    rows = {}
    for depth in _DEPTHS:
        arms = []
        for fair in (False, True):
            world = World(replace(scenario, preload_depth=depth), fair=fair)
            arms.append(summarize(world.run(), world.workers))
        rows[depth] = (arms[0], arms[1])
        change = arms[1].tiers["gold"]["p95"] / arms[0].tiers["gold"]["p95"] - 1
        for name, row, told in (("in order", arms[0], ""), ("by tiers", arms[1], f"{100 * change:+.0f} %")):
            cells = [row.tiers[tier.name] for tier in scenario.tiers]
            shown = (f"{c['p95']:.0f} ms / {100 * c['refused']:.0f} % / {100 * c['tokens']:.0f} %" for c in cells)
            print(f"| {depth} | {name} | {' | '.join(shown)} | {told} |")
    return rows


def _live(seed: int) -> dict[str, Any]:
    scenario = at_load(replace(LIVE, seed=seed), _LOAD)
    print(f"\n{_title(scenario)}: simulated, and on a mesh of processes\n")
    print(
        "| strategy | KV hits | first token p50 / p99 | sessions that moved | turns where the one before was | Jain |"
    )
    print("|---|---|---|---|---|---|")
    found: dict[str, Any] = {}
    for name in ("ring", "least_loaded"):
        world = World(scenario, name)
        simulated = summarize(world.run(), world.workers)
        print(_strategy_row(f"{name}, simulated", simulated))
        live = summarize(run_live(scenario, name), [f"adapter-{number}" for number in range(scenario.workers)])
        print(_strategy_row(f"{name}, live", live), flush=True)
        found[name] = {"simulated": asdict(simulated), "live": asdict(live)}
    return found


def _strategy_row(name: str, row: Summary) -> str:
    return (
        f"| {name} | {100 * row.kv_hits:.1f} % | {row.ttft_ms['p50']:.0f} / {row.ttft_ms['p99']:.0f} ms"
        f" | {row.moved_sessions} | {100 * row.same_worker:.1f} % ({100 * row.home:.0f} % at home) | {row.jain:.3f} |"
    )


def _title(scenario: Scenario) -> str:
    return (
        f"{scenario.name}: {scenario.workers} workers of {scenario.engine.slots} slots, {scenario.sessions} sessions,"
        f" {scenario.turns_per_s} turns a second for {scenario.duration_s:.0f} s"
    )


if __name__ == "__main__":
    main()
