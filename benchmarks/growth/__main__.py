"""How cost grows: CPU a token and first tokens by workers and edges, what one stream of many gets, bytes of a task, memory of a
connection over time; with the models that describe them. No figure of it is a gate.

    python -m benchmarks.growth                       all of it, about 25 minutes
    python -m benchmarks.growth --parts sizes rates
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.accounting import measured
from benchmarks.growth import measure
from benchmarks.growth.fits import fit_bytes, fit_held, fit_rate

_RESULTS: Final = Path(__file__).parent.parent / "results"
_PARTS: Final = ("sizes", "rates", "tasks", "time")
_MESHES: Final = ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2))


def of_sizes(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """The same load at meshes of several sizes."""
    rows = measure.sizes(_MESHES, options.streams, options.rounds)
    lines = [
        f"{options.streams:,} SSE streams of 20 tokens/s, medians of {options.rounds} rounds:",
        "",
        "| workers | edges | path µs a token | all µs a token | first token p95 ms | tokens/s | memory MB | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['workers']} | {row['edges']} | {row['path_us']:.1f} | {row['all_us']:.1f} | {row['ttft_p95_ms']:,.0f}"
        f" | {row['tokens_per_s']:,.0f} | {row['memory_mb']:.0f} | {row['errors']:.0f} |"
        for row in rows
    ]
    return {"sizes": rows}, lines


def of_rates(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """What one stream of n gets of a fast engine."""
    points = measure.rates(options.counts, options.tokens, options.rounds)
    fitted = fit_rate(points)
    said = (
        f"R(n) = {fitted.r0:.0f} / (1 + {fitted.k:.5f} n) tokens/s for each of n streams, R² {fitted.r_squared:.3f}; all together"
        f" at most {fitted.r0 / max(fitted.k, 1e-12):,.0f} tokens/s:"
    )
    lines = [
        said,
        "",
        "| streams | tokens/s each | by the model | error |",
        "|---|---|---|---|",
    ]
    lines += [f"| {n:,} | {rate:.1f} | {fitted(n):.1f} | {fitted(n) / rate - 1:+.1%} |" for n, rate in points]
    return {"rates": points, "rate_model": asdict(fitted)}, lines


def of_tasks(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Bytes of live generations."""
    points = measure.held(options.tasks, options.task_rate, options.hold_s)
    fitted = fit_bytes(points)
    errors = [fitted(n) / bytes_ - 1 for n, bytes_ in points]
    within = max(map(abs, errors)) <= 0.03
    said = (
        f"M(n) = {fitted.base / 1e6:.1f} MB + {fitted.each / 1000:.2f} KB × n for n live generations on one WebSocket at"
        f" {options.task_rate:g} tokens/s; every point within ± 3 %: {'yes' if within else 'NO'}:"
    )
    lines = [
        said,
        "",
        "| tasks | KB each | all, MB | by the model | error |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {n:,} | {bytes_ / n / 1000:.2f} | {bytes_ / 1e6:.1f} | {fitted(n) / 1e6:.1f} | {error:+.1%} |"
        for (n, bytes_), error in zip(points, errors, strict=True)
    ]
    return {"tasks": points, "task_model": asdict(fitted)}, lines


def of_time(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Memory of a connection while it is open."""
    points = measure.over_time(options.rates, options.connections, options.seconds)
    fitted = fit_held(points)
    said = (
        f"ΔM = {fitted.alpha:,.0f} r + {fitted.beta:,.0f} ln(1 + t) + {fitted.gamma:,.0f} [t > {fitted.after_s:.0f} s] bytes for"
        f" each of {options.connections} WebSockets with r tokens/s after t seconds; R² {fitted.r_squared:.3f}"
        f" ({'reaches' if fitted.r_squared >= 0.967 else 'MISSES'} 0.967)"
    )
    return {"time": points, "time_model": asdict(fitted)}, [said]


def plot(report: dict[str, Any], path: Path) -> None:
    """Data as points, models as lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from benchmarks.growth.fits import Bytes, Held, Rate

    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    for edges in sorted({row["edges"] for row in report.get("sizes", ())}):
        rows = [row for row in report["sizes"] if row["edges"] == edges]
        axes[0].plot([row["workers"] for row in rows], [row["all_us"] for row in rows], "o-", label=f"{edges} edge(s)")
    axes[0].set(title="all processes, µs a token", xlabel="workers", ylim=(0, None))
    if "rates" in report:
        n, rate = zip(*report["rates"], strict=True)
        axes[1].plot(n, rate, "o")
        axes[1].plot(n, [Rate(**report["rate_model"])(each) for each in n], "-")
        axes[1].set(title="tokens/s of one stream", xlabel="streams", xscale="log", yscale="log")
    if "tasks" in report:
        n, held = zip(*report["tasks"], strict=True)
        axes[2].plot(n, [bytes_ / 1e6 for bytes_ in held], "o")
        axes[2].plot(n, [Bytes(**report["task_model"])(each) / 1e6 for each in n], "-")
        axes[2].set(title="MB of live generations", xlabel="generations")
    if "time" in report:
        model = Held(**report["time_model"])
        for rate in sorted({row[0] for row in report["time"]}):
            rows = [row for row in report["time"] if row[0] == rate]
            seconds = [row[1] for row in rows]
            dots = axes[3].plot(seconds, [row[2] / 1000 for row in rows], ".", label=f"{rate:g} tokens/s")
            axes[3].plot(seconds, [model(rate, each) / 1000 for each in seconds], "-", color=dots[0].get_color())
        axes[3].set(title="KB of a connection", xlabel="seconds")
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        if each.get_legend_handles_labels()[0]:
            each.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, fits, writes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=1000, help="of each size of mesh")
    parser.add_argument(
        "--counts", type=int, nargs="+", default=[10, 25, 50, 100, 200, 400, 800], help="streams at saturation"
    )
    parser.add_argument("--tokens", type=int, default=3000, help="of each of those")
    parser.add_argument("--tasks", type=int, nargs="+", default=[1000, 3000, 5000])
    parser.add_argument("--task-rate", type=float, default=0.5, help="tokens/s of a task that is held")
    parser.add_argument("--hold-s", type=float, default=20.0)
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[0.5, 2.0, 5.0], help="tokens/s of a connection over time"
    )
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--name", default="growth", help="of the files below benchmarks/results")
    options = parser.parse_args(arguments)
    report = measured("benchmarks.growth")
    text = [f"Measured {report['when'][:10]}: `{report['command']}`, on {report['machine']}."]
    found = {"sizes": of_sizes, "rates": of_rates, "tasks": of_tasks, "time": of_time}
    for part in options.parts:
        figures, lines = found[part](options)
        report |= figures
        text += ["", *lines]
        print("\n".join(["", *lines, ""]), flush=True)
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / f"{options.name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (_RESULTS / f"{options.name}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    plot(report, _RESULTS / f"{options.name}.png")


if __name__ == "__main__":
    main()
