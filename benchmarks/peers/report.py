"""Samples as Markdown tables and as a picture: medians over the rounds, with their least and most."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TOKEN_PATH = ("edge", "adapter")
_Sample = dict[str, Any]


def summary(sample: _Sample) -> str:
    """One sample in a line."""
    load = sample["load"]
    return (
        f"{label(sample):34} {sample['case']}: {sum(sample['us'].values()):7.1f} µs a token, first token p95 "
        f"{load['ttft_ms'].get('p95', 0):.0f} ms, {load['tokens_per_s']:,} tokens/s, {load['held_tokens_per_s']:,} held, "
        f"errors {load['errors'] or 0}"
    )


def label(sample: _Sample) -> str:
    """System, surface and, for ours, durability."""
    words = [sample["system"], sample["surface"]]
    return " ".join([*words, sample["durability"]] if sample["system"] == "streamway" else words)


def markdown(report: dict[str, Any]) -> str:
    """A table for each case."""
    machine, samples = report["machine"], report["samples"]
    versions = ", ".join(f"{name} ({wanted})" for name, wanted in report["versions"].items())
    about = (
        f"Measured {report['when'][:10]} on {machine['cpus']} shared cores ({machine['processor']}), Python "
        f"{machine['python']}, commit {machine.get('commit', 'unknown')}: `{report['command']}`. {report['rounds']} interleaved "
        f"rounds; medians, least and most in "
        f"brackets. Systems: {versions}. Left out: {', '.join(report['left_out']) or 'none'}."
    )
    lines = [about, "", _LEGEND]
    for case in dict.fromkeys(sample["case"] for sample in samples if "load" in sample):
        lines += ["", f"### {case[0].upper()}{case[1:]}", "", *_HEADER]
        rows = [sample for sample in samples if sample["case"] == case]
        for who in dict.fromkeys(label(sample) for sample in rows):
            lines.append(_row(who, [sample for sample in rows if label(sample) == who]))
    lines += _by_process(samples)
    freed = [sample for sample in samples if sample["case"] == "cancel"]
    if freed:
        lines += ["", "### From a cut connection to a free engine, ms", ""]
    for system in dict.fromkeys(sample["system"] for sample in freed):
        lines.append(f"* {system}: {_spread([s['cancel_ms'] for s in freed if s['system'] == system])}")
    return "\n".join(lines) + "\n"


_LEGEND = (
    "*All* is every process of a system, *path* those that a token passes (edge and adapter of the mesh, and the router for "
    "gRPC; the whole of the others). Memory is what a stream added at the peak. Errors are of all rounds."
)
_COLUMNS = (
    "system",
    "path µs a token",
    "all µs a token",
    "first token ms p50 / p95 / p99",
    "gap p99 ms",
    "tokens/s",
    "tokens/s held for 5 s",
    "frames/s",
    "frames a token",
    "KB a stream",
    "errors",
)
_HEADER = (f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|")


def path_us(sample: _Sample) -> float:
    """µs of CPU a token of the processes that tokens pass."""
    if sample["system"] == "streamway":
        names = [*_TOKEN_PATH, "router"] if sample["surface"] == "grpc" else list(_TOKEN_PATH)
        return float(sum(value for name, value in sample["us"].items() if name in names))
    return all_us(sample)


def all_us(sample: _Sample) -> float:
    """µs of CPU a token of all processes."""
    return float(sum(sample["us"].values()))


def _row(who: str, rows: list[_Sample]) -> str:
    def median(of: Callable[[_Sample], float]) -> float:
        return statistics.median(of(row) for row in rows)

    def first(quantile: str) -> float:
        return median(lambda row: row["load"]["ttft_ms"].get(quantile, 0.0))

    frames = sum(row["load"]["frames"] for row in rows) / max(1, sum(row["load"]["tokens"] for row in rows))
    kilobytes = median(lambda row: max(0.0, row["peak_mb"] - row["idle_mb"]) * 1000 / row["streams"])
    errors = sum(sum(row["load"]["errors"].values()) for row in rows)
    return (
        f"| {who} | {_spread([path_us(row) for row in rows])} | {_spread([all_us(row) for row in rows])}"
        f" | {first('p50'):,.0f} / {first('p95'):,.0f} / {first('p99'):,.0f}"
        f" | {median(lambda row: row['load']['itl_ms'].get('p99', 0.0)):,.0f}"
        f" | {median(lambda row: row['load']['tokens_per_s']):,.0f}"
        f" | {median(lambda row: row['load']['held_tokens_per_s']):,.0f}"
        f" | {median(lambda row: row['load']['frames'] / max(0.01, row['load']['seconds'])):,.0f}"
        f" | {frames:.2f} | {kilobytes:,.0f} | {errors} |"
    )


def _by_process(samples: list[_Sample]) -> list[str]:
    """Where the mesh's CPU goes."""
    ours = [sample for sample in samples if sample["system"] == "streamway" and "us" in sample]
    names = sorted({name for sample in ours for name in sample["us"]})
    if not ours:
        return []
    lines = ["", "### The mesh by process, µs of CPU a token", "", f"| case | arm | {' | '.join(names)} |"]
    lines.append("|---" * (len(names) + 2) + "|")
    for case, who in dict.fromkeys((sample["case"], label(sample)) for sample in ours):
        rows = [sample for sample in ours if sample["case"] == case and label(sample) == who]
        values = [statistics.median(row["us"].get(name, 0.0) for row in rows) for name in names]
        lines.append(f"| {case} | {who.partition(' ')[2]} | {' | '.join(f'{value:.1f}' for value in values)} |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} [{min(values):.1f}–{max(values):.1f}]"


def plots(report: dict[str, Any], path: Path) -> None:
    """CPU a token, first tokens and memory of each system against the number of streams, for the cases that differ in it only."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pictures: list[tuple[str, Callable[[_Sample], float]]] = [
        ("µs of CPU a token, token path", path_us),
        ("first token p95, ms", lambda sample: float(sample["load"]["ttft_ms"].get("p95", 0.0))),
        ("memory at the peak, MB", lambda sample: float(sample["peak_mb"])),
    ]
    figure, all_axes = pyplot.subplots(1, len(pictures), figsize=(16, 4.4), layout="constrained")
    samples = [s for s in report["samples"] if "load" in s and s["case"].endswith(" streams")]
    for axes, (title, of) in zip(all_axes, pictures, strict=True):
        for who in dict.fromkeys(label(sample) for sample in samples):
            mine = [sample for sample in samples if label(sample) == who]
            if not who.startswith("streamway") or "sse" in who or who.endswith("relaxed"):
                counts = sorted({sample["streams"] for sample in mine})
                middle = [statistics.median(of(s) for s in mine if s["streams"] == count) for count in counts]
                style = "-" if who.startswith("streamway") else "--"
                axes.plot(counts, middle, style, marker="o", markersize=4, label=who)
        axes.set(xscale="log", yscale="log", xlabel="streams", title=title)
        axes.spines[["top", "right"]].set_visible(False)
    if samples:
        all_axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
