"""Looks for settings in virtual time: NSGA-II over connections kept to an engine and for how long, longest wait for a slot,
flush window and preload depth. Prints the front of first-token p99, connection reuse and CPU a token, and writes the chosen
configuration as a file that STREAMWAY_CONFIG may name. What is chosen is weighed again on turns that the search has not seen, and
with --live beside the default on a mesh of processes."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.accounting import machine
from benchmarks.simulate.__main__ import at_load
from benchmarks.simulate.scenario import LIVE, Scenario
from benchmarks.tune import costs, live
from benchmarks.tune.model import Figures, Model
from benchmarks.tune.parameters import DEFAULT, LADDERS, Configuration
from benchmarks.tune.search import P99_GOAL, REUSE_GOAL, Found, choose, reaches, search

_RESULTS: Final = Path(__file__).parent.parent / "results"
_UNSEEN: Final = 1000
_COLUMNS: Final = (*LADDERS, "first token p99 ms", "reuse", "µs a token", "refused", "gap p99 ms", "kept at most")


def _row(name: str, configuration: Configuration, figures: Figures) -> str:
    values = [f"{getattr(configuration, field):g}" for field in LADDERS]
    told = (
        *(f"{figures.p99_ms:,.0f}", f"{figures.reuse:.1%}", f"{figures.cost_us:.1f}"),
        *(f"{figures.refused:.1%}", f"{figures.gap_p99_ms:.0f}", str(figures.kept)),
    )
    return f"| {' | '.join((name, *values, *told))} |"


def table(base: Figures, chosen: Found, front: Sequence[Found]) -> list[str]:
    """The default, what was chosen, and the front."""
    rows = [_row("default", DEFAULT, base), _row("chosen", chosen.configuration, chosen.figures)]
    rows += [_row("", found.configuration, found.figures) for found in front if found != chosen]
    return [f"| | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|", *rows]


def verdict(what: str, figures: Figures, base: Figures) -> str:
    """Whether the goal is reached, with its figures."""
    ratio = figures.p99_ms / max(1e-9, base.p99_ms)
    return (
        f"{what}: reuse {figures.reuse:.1%} (goal ≥ {REUSE_GOAL:.1%}, default {base.reuse:.1%}), first token p99 {ratio:.3f} ×"
        f" the default's (goal ≤ {P99_GOAL}): {'reached' if reaches(figures, base) else 'NOT reached'}"
    )


def plot(base: Figures, chosen: Found, front: Sequence[Found], path: Path) -> None:
    """The front: first tokens over reuse, cost as colour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    shown = axes.scatter(
        [100 * row.figures.reuse for row in front],
        [row.figures.p99_ms for row in front],
        c=[row.figures.cost_us for row in front],
        cmap="viridis",
    )
    figure.colorbar(shown, label="µs of CPU a token")
    axes.scatter(100 * base.reuse, base.p99_ms, marker="x", color="black", label="default")
    axes.scatter(
        100 * chosen.figures.reuse,
        chosen.figures.p99_ms,
        marker="o",
        s=120,
        facecolor="none",
        edgecolor="red",
        label="chosen",
    )
    axes.set(xlabel="requests on a connection that was there, %", ylabel="first token p99, ms")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def confirm(scenario: Scenario, written: Path, rounds: int) -> list[dict[str, Any]]:
    """Default and chosen in turn, both asked the same turns in a round, which no other round asks."""
    samples: list[dict[str, Any]] = []
    for turn in range(rounds):
        asked = replace(scenario, seed=_UNSEEN + turn)
        arms = [("default", None), ("chosen", written)]
        for name, file in arms if turn % 2 == 0 else reversed(arms):
            figures = live.run(asked, file)
            samples.append({"round": turn + 1, "arm": name, **asdict(figures)})
            print(
                f"live, round {turn + 1}/{rounds}, {name}: first token p99 {figures.p99_ms:,.0f} ms, reuse"
                f" {figures.reuse:.1%}, {figures.cost_us:.0f} µs a token, refused {figures.refused:.1%}, gap p99"
                f" {figures.gap_p99_ms:.0f} ms",
                flush=True,
            )
    return samples


def of_arm(samples: Sequence[dict[str, Any]], arm: str) -> Figures:
    """The medians of its rounds."""
    rows = [sample for sample in samples if sample["arm"] == arm]
    return Figures(**{name: statistics.median(row[name] for row in rows) for name in Figures.__dataclass_fields__})


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, searches, prints, writes."""
    parser = argparse.ArgumentParser(prog="streamway tune", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the search; the same seed finds the same")
    parser.add_argument("--population", type=int, default=24)
    parser.add_argument("--generations", type=int, default=12)
    parser.add_argument(
        "--turn-seeds", type=int, default=2, help="how many different minutes of turns each is weighed on"
    )
    parser.add_argument("--load", type=float, default=0.8, help="turns asked, as a share of what the mesh finishes")
    parser.add_argument("--duration-s", type=float, default=LIVE.duration_s)
    parser.add_argument("--out", type=Path, default=Path("tuned.yaml"), help="where the chosen configuration goes")
    parser.add_argument(
        "--live", type=int, default=0, metavar="ROUNDS", help="A/B rounds on a mesh, about 3 minutes each"
    )
    parser.add_argument("--found", type=Path, metavar="FILE", help="no search: only the A/B rounds, of this file")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/tune.json and its picture too")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    scenario = at_load(replace(LIVE, duration_s=options.duration_s), options.load)
    print(
        f"{scenario.workers} workers of {scenario.engine.slots} slots, {scenario.sessions} sessions, {scenario.turns_per_s} turns"
        f" a second for {scenario.duration_s:.0f} s, {options.turn_seeds} times",
        flush=True,
    )
    if options.found is not None:
        samples = confirm(scenario, options.found, max(1, options.live))
        said = verdict("On a mesh of processes", of_arm(samples, "chosen"), of_arm(samples, "default"))
        print(said)
        if options.keep:
            kept = {
                "file": options.found.read_text(encoding="utf-8"),
                "machine": machine(),
                "verdict": said,
                "live": samples,
            }
            (_RESULTS / "tune-live.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        return
    measured = costs.saved()
    model = Model(scenario, range(1, options.turn_seeds + 1), measured)
    base = model.figures(DEFAULT)
    front = search(
        model,
        population=options.population,
        generations=options.generations,
        seed=options.seed,
        tell=lambda line: print(line, flush=True),
    )
    chosen = choose(front, base)
    lines = table(base, chosen, front)
    print("\n".join(["", *lines, ""]))
    unseen = Model(scenario, range(_UNSEEN, _UNSEEN + options.turn_seeds), measured)
    told = [
        verdict("On the turns that it was chosen by", chosen.figures, base),
        verdict("On others", unseen.figures(chosen.configuration), unseen.figures(DEFAULT)),
    ]
    written: Path = options.out
    command = " ".join(["streamway tune", *(sys.argv[1:] if arguments is None else arguments)])
    written.write_text(
        chosen.configuration.yaml(f"Written by {command}", *told, f"Use: STREAMWAY_CONFIG={written} streamway up"),
        encoding="utf-8",
    )
    samples = confirm(scenario, written, options.live) if options.live else []
    if samples:
        told.append(verdict("On a mesh of processes", of_arm(samples, "chosen"), of_arm(samples, "default")))
    print("\n".join(told))
    print(
        f"\nwritten to {written}, in {time.monotonic() - began:.0f} s; use it: STREAMWAY_CONFIG={written} streamway up"
    )
    if options.keep:
        report = {
            "command": command,
            "machine": machine(),
            "costs": asdict(measured),
            "default": asdict(base),
            "chosen": asdict(chosen),
            "front": [asdict(row) for row in front],
            "verdicts": told,
            "live": samples,
        }
        (_RESULTS / "tune.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        (_RESULTS / "tune.md").write_text("\n".join([*lines, "", *told]) + "\n", encoding="utf-8")
        plot(base, chosen, front, _RESULTS / "tune.png")


if __name__ == "__main__":
    main()
