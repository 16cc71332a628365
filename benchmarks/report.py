"""The results of `benchmarks.run` as a Markdown table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

GROUPS = ("edge", "adapter", "router", "cache", "valkey")


def markdown(report: dict[str, Any]) -> str:
    """One row per surface and number of streams. µs of CPU a token, MB of memory at the peak, times in ms."""
    machine = report["machine"]
    lines = [
        f"Measured {report['when'][:10]} on {machine['cpus']} shared cores ({machine['processor']}), Python",
        f"{machine['python']}: `{report['command']}`. Medians; the spread of the token path in brackets.",
        "",
        "| surface | streams | durability | token path µs a token | "
        + " | ".join(f"{name} µs" for name in GROUPS)
        + " | memory MB | first token p50 / p95 | gap p99 | tokens/s | errors |",
        "|---|---|---|---|" + "---|" * len(GROUPS) + "---|---|---|---|---|",
    ]
    for case in report["cases"]:
        path = case["token_path_us"]
        cpu = " | ".join(f"{_sum(case['us_per_token'], name):.1f}" for name in GROUPS)
        lines.append(
            f"| {case['surface']} | {case['streams']:,} | {case['durability']}"
            f" | {path['median']:.1f} [{path['min']:.1f}–{path['max']:.1f}] | {cpu}"
            f" | {sum(case['memory_mb'].values()):.0f} | {case['ttft_ms']['p50']:.0f} / {case['ttft_ms']['p95']:.0f}"
            f" | {case['itl_ms']['p99']:.0f} | {case['tokens_per_s']:,.0f} | {case['errors']} |"
        )
    journal = report["journal"]
    if journal:
        lines += ["", "Token path with the journal, as a multiple of the same round's without it:", ""]
    for case in journal:
        ratio = case["ratio"]
        lines.append(
            f"* {case['surface']}, {case['streams']:,} streams, {case['durability']}:"
            f" {ratio['median']:.2f} [{ratio['min']:.2f}–{ratio['max']:.2f}]"
        )
    return "\n".join(lines) + "\n"


def plot(report: dict[str, Any], path: Path) -> None:
    """Stacked bars: where the CPU of a token goes, by surface and number of streams."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = report["cases"]
    labels = [f"{case['surface']}\n{case['streams']:,}\n{case['durability']}" for case in cases]
    figure, axes = pyplot.subplots(figsize=(1.4 * len(cases) + 2.5, 4.2), layout="constrained")
    bottom = [0.0] * len(cases)
    for name, colour in zip(GROUPS, ("#2f6f8f", "#e07a3f", "#7b8f3a", "#9a6fb0", "#b8b8b8"), strict=True):
        heights = [_sum(case["us_per_token"], name) for case in cases]
        axes.bar(labels, heights, bottom=bottom, label=name, color=colour, width=0.62)
        bottom = [base + height for base, height in zip(bottom, heights, strict=True)]
    axes.set_ylabel("µs of CPU a token")
    axes.set_title(
        f"Whole processes, {report['tokens_per_s_of_a_stream']:.0f} tokens/s a stream", loc="left", fontsize=11
    )
    axes.legend(frameon=False, ncols=len(GROUPS), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _sum(values: dict[str, float], prefix: str) -> float:
    return sum(value for name, value in values.items() if name.startswith(prefix))
