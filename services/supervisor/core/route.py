"""What became of one generation, made of what each process kept of it: which hop was inside which, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Of the facts of a hop those that say more than its name, in this order.
_SHOWN: Final = (
    "streamway.surface",
    "streamway.route",
    "streamway.reason",
    "streamway.cache",
    "streamway.cache.outcome",
    "streamway.worker",
    "streamway.attempt",
    "streamway.from_worker",
    "gen_ai.provider.name",
    "streamway.prompt_type",
    "gen_ai.usage.output_tokens",
)
_SHORT: Final = {
    "gen_ai.usage.output_tokens": "tokens",
    "gen_ai.provider.name": "engine",
    "streamway.from_worker": "continues",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One line: at so many milliseconds after the first of all. `took_ms` None: it has not ended, or is a moment."""

    at_ms: float
    took_ms: float | None
    process: str
    depth: int
    what: str
    details: str
    outcome: str
    moment: bool = False


def steps(rows: Sequence[dict[str, Any]]) -> list[Step]:
    """The hops of all processes as one tree in the order of their beginnings, each with its moments.

    `rows` are as `Hop.row` makes them. The processes' clocks are those of their machines: between two machines an order may
    look wrong by what their clocks differ.
    """
    known = {row["span"] for row in rows}
    inside: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["began_ms"]):
        inside.setdefault(row["parent"] if row["parent"] in known else "", []).append(row)
    began = min((row["began_ms"] for row in rows), default=0.0)

    def walk(parent: str, depth: int) -> Iterator[Step]:
        for row in inside.get(parent, ()):
            took = row["ended_ms"] - row["began_ms"] if row["ended_ms"] else None
            yield Step(
                *(row["began_ms"] - began, took, row["process"], depth, row["name"]),
                *(_details(row["facts"]), row["outcome"] or "…"),
            )
            for name, at_ms in row["marks"]:
                yield Step(at_ms - began, None, row["process"], depth + 1, name, "", "", moment=True)
            yield from walk(row["span"], depth + 1)

    return list(walk("", 0))


def _details(facts: dict[str, Any]) -> str:
    return ", ".join(f"{_SHORT.get(name, name.rpartition('.')[2])} {facts[name]}" for name in _SHOWN if facts.get(name))
