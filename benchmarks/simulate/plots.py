"""Pictures of the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.simulate.results import Summary

mpl.use("Agg")
from matplotlib import pyplot as plt


def plot_strategies(rows: dict[str, Summary], path: Path) -> None:
    """KV hits, first-token times, moves and fairness of each strategy."""
    names = list(rows)
    figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
    _bars(axes[0], names, [100 * rows[name].kv_hits for name in names], "prompt tokens found in KV, %")
    _bars(axes[1], names, [rows[name].ttft_ms["p50"] for name in names], "first token, ms: p50, p99")
    axes[1].scatter(names, [rows[name].ttft_ms["p99"] for name in names], marker="_", s=400, color="black")
    axes[1].set_yscale("log")
    _bars(axes[2], names, [rows[name].moved_sessions for name in names], "sessions that changed workers")
    _bars(axes[3], names, [rows[name].jain for name in names], "Jain's index over workers")
    axes[3].set_ylim(0.8, 1.0)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def plot_overload(rows: dict[int, tuple[Summary, Summary]], path: Path) -> None:
    """The wait for the first token at p95, first come first served (pale) and by tiers."""
    figure, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
    tiers = ("gold", "silver", "bronze")
    colors = ("#c9a227", "#8a8d91", "#a4673f")
    for index, (depth, (served_in_order, by_tier)) in enumerate(rows.items()):
        for place, (tier, color) in enumerate(zip(tiers, colors, strict=True)):
            at = index + (place - 1) * 0.28
            axis.bar(at - 0.06, served_in_order.tiers[tier]["p95"] / 1000, 0.11, color=color, alpha=0.35)
            label = tier if index == 0 else None
            axis.bar(at + 0.06, by_tier.tiers[tier]["p95"] / 1000, 0.11, color=color, label=label)
        axis.text(index, -0.02, f"depth {depth}", ha="center", va="top", transform=axis.get_xaxis_transform())
    axis.set_xticks([])
    axis.set_ylabel("first token, p95, s")
    axis.set_title("Twice the load: first come first served (pale), by tiers (full)", fontsize=10)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _bars(axis: Any, names: list[str], values: list[float], title: str) -> None:
    axis.bar(names, values, color="#3b6ea5")
    axis.set_title(title, fontsize=9)
    axis.tick_params(axis="x", labelrotation=25, labelsize=8)
