"""The mesh beside other gateways, in front of one simulated engine: `make bench`.

    python -m benchmarks.peers --rounds 3
    python -m benchmarks.peers --systems streamway vllm-router --cases "1,000 streams" --rounds 5

Peers are installed into environments of their own below `.build/peers`; one that does not install is left out and named. In each
round every system is started in front of a fresh engine, asked, and stopped, one after the other, so that what else the machine
does meets all of them. CPU is that of all processes of a system, from the kernel's accounting; engine and load generator are left
out. Writes `benchmarks/results/NAME.json`, `.md` and pictures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.accounting import measured
from benchmarks.environment import environment
from benchmarks.peers.cases import CASES, Case
from benchmarks.peers.measure import cancels, engine, measure
from benchmarks.peers.report import markdown, plots, summary
from benchmarks.peers.systems import System

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "benchmarks" / "results"
_OURS = System("streamway", 10_000)
# Name of the peer to what pip is asked for.
_PACKAGES = {
    "vllm-router": "vllm-router==0.1.17",
    "sglang-router": "sglang-router==0.3.2",
    "litellm": "litellm[proxy]==1.108",
}
_NAIVE = System("naive gateway", 10_000)
# LiteLLM's proxy takes 1.1 ms of CPU a token, so that a hundred streams of 20 tokens/s are more than a core.
_MOST_STREAMS = {"litellm": 100}


def systems(names: list[str]) -> list[System]:
    """Those of the names that can be started here."""
    found = []
    for name in names:
        if name == _OURS.name:
            found.append(_OURS)
        elif name == _NAIVE.name:
            found.append(_NAIVE)
        else:
            try:
                python = environment(_ROOT / ".build" / "peers" / name, (_PACKAGES[name],))
            except subprocess.SubprocessError as problem:
                print(f"{name} is left out, since it does not install here: {problem}", file=sys.stderr, flush=True)
                continue
            found.append(System(name, _MOST_STREAMS.get(name, 10_000), python))
    return found


def ways(system: System, case: Case) -> list[tuple[str, str]]:
    """The surfaces and durabilities in which a system is asked a case; what keeps no journal has the durability "off"."""
    if system.most_streams < case.streams:
        return []
    if system.name == _NAIVE.name:
        return [("rest", "off")]
    if system.name != _OURS.name:
        return [("sse", "off")] if "sse" in case.surfaces else []
    others = [(surface, "relaxed") for surface in case.surfaces if surface != "sse"]
    return [("sse", durability) for durability in case.durabilities if "sse" in case.surfaces] + others


def run(cases: list[Case], found: list[System], rounds: int) -> list[dict[str, Any]]:
    """All samples, in the order in which they were taken."""
    samples: list[dict[str, Any]] = []
    for turn in range(rounds):
        for rate in dict.fromkeys(case.rate for case in cases):
            for system in found:
                todo = [(case, *way) for case in cases if case.rate == rate for way in ways(system, case)]
                if not todo:
                    continue
                with engine(rate) as url, system.started(url) as running:
                    for case, surface, durability in todo:
                        sample = measure(system, running, case, surface, durability)
                        who = {"system": system.name, "case": case.name, "surface": surface, "durability": durability}
                        samples.append({**who, "round": turn + 1, "streams": case.streams, **sample})
                        print(f"round {turn + 1}/{rounds}  {summary(samples[-1])}", flush=True)
                    if rate == cases[0].rate and system.name != _NAIVE.name:
                        freed = cancels(system, running, url)
                        samples.append({"system": system.name, "case": "cancel", "round": turn + 1, "cancel_ms": freed})
                        print(
                            f"round {turn + 1}/{rounds}  {system.name}: engine free {freed:.0f} ms after a cut",
                            flush=True,
                        )
    return samples


def main() -> None:
    """Parses the command line, measures, writes the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everyone = [_OURS.name, *_PACKAGES, _NAIVE.name]
    parser.add_argument("--systems", nargs="+", choices=everyone, default=everyone)
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], help="by name; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="peers", help="of the files below benchmarks/results")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    found = systems(options.systems)
    report = {
        **measured("benchmarks.peers"),
        "versions": {system.name: _PACKAGES.get(system.name, "this checkout") for system in found},
        "left_out": [name for name in options.systems if name not in {system.name for system in found}],
        "rounds": options.rounds,
        "samples": run(cases, found, options.rounds),
    }
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / f"{options.name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = markdown(report)
    (_RESULTS / f"{options.name}.md").write_text(table, encoding="utf-8")
    plots(report, _RESULTS / f"{options.name}.png")
    print("\n" + table)


if __name__ == "__main__":
    main()
