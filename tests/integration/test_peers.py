"""The benchmark beside other gateways measures what it says, shown by the one that needs no installing."""

from __future__ import annotations

from benchmarks.peers.__main__ import ways
from benchmarks.peers.cases import CASES, Case
from benchmarks.peers.measure import engine, measure
from benchmarks.peers.report import label, markdown
from benchmarks.peers.systems import System


def test_a_gateway_is_started_asked_and_accounted_for() -> None:
    naive = System("naive gateway", 10_000)
    case = Case("five answers", 5, tokens=20, rate=200.0)
    with engine(case.rate) as url, naive.started(url) as running:
        sample = measure(naive, running, case, "rest", "off")
    assert sample["load"]["errors"] == {}
    assert sample["load"]["finished"] == 5
    assert sample["load"]["tokens"] == 100
    assert sample["us"]["process"] >= 0
    assert sample["peak_mb"] > 10
    who = {"system": naive.name, "case": case.name, "surface": "rest", "durability": "off", "streams": 5, "round": 1}
    table = markdown(
        {
            "when": "2026-11-30T00:00:00+00:00",
            "command": "",
            "machine": {"cpus": 1, "processor": "", "python": ""},
            "versions": {naive.name: "this checkout"},
            "left_out": [],
            "rounds": 1,
            "samples": [{**who, **sample}],
        }
    )
    assert "### Five answers" in table
    assert f"| {label(who)} |" in table


def test_ours_is_asked_on_every_surface_and_others_on_those_they_have() -> None:
    case = CASES[0]
    ours = ways(System("streamway", 10_000), case)
    assert {surface for surface, _ in ours} == {"sse", "rest", "websocket", "grpc"}
    assert {durability for surface, durability in ours if surface == "sse"} == {"off", "relaxed", "strict"}
    assert ways(System("vllm-router", 10_000), case) == [("sse", "off")]
    assert ways(System("naive gateway", 10_000), case) == [("rest", "off")]
    assert ways(System("litellm", 50), case) == []
