"""The figures as tables for a terminal and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.simulate.results import Summary

TIERS = ("gold", "silver", "bronze")


def of_strategies(rows: Mapping[str, Summary]) -> list[str]:
    """One row for each, by the name it is given."""
    lines = [
        "| strategy | prompts in KV | first token p50 / p99 | sessions that moved | turns where the one before was | Jain |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        home = f" ({100 * row.home:.0f} % at home)" if row.home else ""
        lines.append(
            f"| {name} | {100 * row.kv_hits:.1f} % | {_ms(row.ttft_ms['p50'])} / {_ms(row.ttft_ms['p99'])} ms"
            f" | {row.moved_sessions} | {100 * row.same_worker:.1f} %{home} | {row.jain:.3f} |"
        )
    return lines


def of_joins(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What a worker that comes means to others, by the pace of moves."""
    lines = [
        "| moves a second | sessions that moved in 10 s / by the end | first token p99 of the others, 20 s before / after |",
        "|---|---|---|",
    ]
    for name, row in rows.items():
        comes = f"{row['moved_10s']:.0f} / {row['moved']:.0f} of {row['sessions']:.0f}" if row["moved"] else "–"
        lines.append(f"| {name} | {comes} | {row['p99_before_ms']:.0f} / {row['p99_after_ms']:.0f} ms |")
    return lines


def of_tiers(arms: Sequence[tuple[str, Summary]]) -> list[str]:
    """First token at p95, refusals and part of the tokens of each tier, arm by arm; the first arm of a group is the measure.

    An arm named "…: in order" begins a group. The last columns are gold's wait and all tokens against it.
    """
    lines = ["| arm | " + " | ".join(TIERS) + " | gold's p95 | all tokens |", "|---|---|---|---|---|---|"]
    measure = None
    for name, row in arms:
        cells = [row.tiers[tier] for tier in TIERS]
        shown = (f"{_ms(c['p95'])} ms / {100 * c['refused']:.0f} % / {100 * c['tokens']:.0f} %" for c in cells)
        if name.endswith("in order"):
            measure, told = row, " | "
        else:
            assert measure is not None, "each group begins with its measure"
            told = (
                f"{_change(row.tiers['gold']['p95'], measure.tiers['gold']['p95'])}"
                f" | {_change(row.made_tokens, measure.made_tokens)}"
            )
        lines.append(f"| {name} | {' | '.join(shown)} | {told} |")
    return lines


def _ms(value: float) -> str:
    return f"{value:,.0f}"


def _change(value: float, measure: float) -> str:
    return f"{100 * (value / measure - 1):+.0f} %".replace("-", "−")
