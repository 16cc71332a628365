"""Pictures of the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.cache_eval.pairs import ARMS, Scored
from benchmarks.cache_eval.streams import DEFAULT, Run

mpl.use("Agg")
from matplotlib import pyplot as plt

_SHOWN = ("exact + folded", "0.92, no rules", "0.92, rules", "budget 1 %, rules", DEFAULT, "GPTCache", "RedisVL")
_COLORS = dict(zip(_SHOWN, ("#8a8d91", "#d9a441", "#c46a3b", "#7fa7d1", "#1f4e8c", "#b04a4a", "#8d5fa8"), strict=True))


def plot_pairs(shown: Sequence[Scored], peers: Mapping[str, tuple[float, float]], name: str, path: Path) -> None:
    """Reusable pairs served over traps served, as the threshold falls; one point for each peer."""
    figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
    good = [each for each in shown if each.pair.reusable]
    bad = [each for each in shown if not each.pair.reusable]
    for arm, serves in ARMS.items():
        levels = sorted({round(each.similarity, 3) for each in shown}, reverse=True)
        x = [100 * sum(e.similarity >= t and serves(e) for e in bad) / len(bad) for t in levels]
        y = [100 * sum(e.similarity >= t and serves(e) for e in good) / len(good) for t in levels]
        axis.plot(x, y, label=arm)
    for peer, (traps, reusable) in peers.items():
        axis.plot(traps, reusable, "o", label=peer)
    axis.set(xlabel="traps served, %", ylabel="reusable pairs served, %", title=name)
    axis.legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_time(runs: Mapping[str, Sequence[Run]], name: str, path: Path) -> None:
    """Hits and wrong answers over time, in the mean over orders."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    for policy in _SHOWN:
        if policy not in runs:
            continue
        for axis, what in zip(axes, ("hits", "wrong"), strict=True):
            lines = [np.cumsum(getattr(run, what)) / np.arange(1, len(run.hits) + 1) for run in runs[policy]]
            shortest = min(map(len, lines))
            axis.plot(100 * np.mean([line[:shortest] for line in lines], axis=0), label=policy, color=_COLORS[policy])
    figure.suptitle(name)
    axes[0].set(xlabel="requests", ylabel="answered, % of requests so far")
    axes[1].set(xlabel="requests", ylabel="answered wrongly, % of requests so far", ylim=(0, 6))
    axes[1].axhline(1, color="black", linewidth=0.7, linestyle=":")
    axes[0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_precision(runs: Mapping[str, Sequence[Run]], name: str, path: Path) -> None:
    """Precision over hit ratio of each policy (P-CHR)."""
    figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for policy, each in runs.items():
        hits, wrong = sum(sum(run.hits) for run in each), sum(sum(run.wrong) for run in each)
        total = sum(len(run.hits) for run in each)
        if hits:
            axis.plot(100 * hits / total, 100 * (hits - wrong) / hits, "o")
            axis.annotate(
                policy,
                (100 * hits / total, 100 * (hits - wrong) / hits),
                fontsize=7,
                xytext=(4, 2),
                textcoords="offset points",
            )
    axis.set(xlabel="hits, % of requests", ylabel="right, % of hits", title=name)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=80)
    plt.close(figure)
