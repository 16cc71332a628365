"""The hops of a generation as one tree, whoever told them and in which order."""

from __future__ import annotations

from typing import Any

from services.supervisor.core.route import steps


def row(name: str, span: str, parent: str, began: float, ended: float, **more: Any) -> dict[str, Any]:
    return {
        "process": name.split(maxsplit=1)[0],
        "name": name,
        "span": span,
        "parent": parent,
        "began_ms": began,
        "ended_ms": ended,
        "outcome": "finished" if ended else "",
        "marks": [],
        "facts": {},
        **more,
    }


def test_each_hop_is_inside_its_parent_and_moments_inside_their_hop() -> None:
    told = [
        row("adapter work", "c", "b", 1004.0, 1050.0, facts={"gen_ai.usage.output_tokens": 7, "streamway.attempt": 1}),
        row("router open", "b", "a", 1001.0, 1003.0, facts={"streamway.route": "home"}),
        row("edge chat", "a", "", 1000.0, 0.0, marks=[["accepted", 1003.5]]),
        row("edge resume", "d", "elsewhere", 1060.0, 1070.0),
    ]
    shown = steps(told)
    assert [(step.what, step.depth, step.at_ms, step.took_ms) for step in shown] == [
        ("edge chat", 0, 0.0, None),
        ("accepted", 1, 3.5, None),
        ("router open", 1, 1.0, 2.0),
        ("adapter work", 2, 4.0, 46.0),
        # Its parent is the client's own span, which nobody here knows.
        ("edge resume", 0, 60.0, 10.0),
    ]
    assert [step.outcome for step in shown] == ["…", "", "finished", "finished", "finished"]
    assert shown[3].details == "attempt 1, tokens 7"
    assert shown[2].details == "route home"


def test_of_nothing_comes_nothing() -> None:
    assert steps([]) == []
