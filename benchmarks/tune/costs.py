"""What an event and a connection cost on a mesh of processes: the figures that the simulation cannot know.

python -m benchmarks.tune.costs

The token path is asked for the same tokens with a short and with a long flush window, and its CPU is put as a line over the
events that a token made; short answers are asked over kept connections and over new ones. Writes results/tune-costs.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.accounting import machine
from benchmarks.run import Mesh, token_path
from benchmarks.simulated_engine import EngineServer
from streamway.simulation.settings import SimulationSettings

SAVED: Final = Path(__file__).parent.parent / "results" / "tune-costs.json"
_WINDOWS_MS: Final = (1, 10, 20, 50)
_STREAMS: Final = 40
_RATE: Final = 150.0
_ROUNDS: Final = 20
_CONNECTS: Final = 300


@dataclass(frozen=True)
class Costs:
    """µs of CPU of edge and adapter for a token, for an event with tokens, for a connection; ms until one is there."""

    token_us: float
    event_us: float
    connection_us: float
    connection_ms: float


def saved() -> Costs:
    """As measured last."""
    found = json.loads(SAVED.read_text(encoding="utf-8"))
    return Costs(**found["costs"])


def _mesh_figures(environment: dict[str, str], tokens: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Mesh(Path(folder), _RATE, _STREAMS, environment) as mesh:
        mesh.measure(("sse", _STREAMS, "relaxed"), 20, 1)
        sample = mesh.measure(("sse", _STREAMS, "relaxed"), tokens, rounds)
        load = sample["load"]
        return {
            "us": token_path(sample),
            "events": load["frames"] / max(1, load["tokens"]),
            "request_us": token_path(sample) * load["tokens"] / max(1, load["finished"]),
            "errors": float(sum(load["errors"].values())),
        }


async def _connect_ms() -> float:
    server = EngineServer(SimulationSettings())
    await server.start()
    host, port = server.address.removeprefix("http://").rsplit(":", 1)
    loop, took = asyncio.get_running_loop(), []
    for _ in range(_CONNECTS):
        began = time.perf_counter()
        transport, _protocol = await loop.create_connection(asyncio.Protocol, host, int(port))
        took.append((time.perf_counter() - began) * 1000)
        transport.close()
    await server.close()
    return statistics.median(took)


def line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: where the line begins, and its slope."""
    slope, base = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return base, slope


def main() -> None:
    """Measures, prints, writes; what is not asked for is kept as it was measured last."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune.costs", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=["windows", "connections"], default=["windows", "connections"])
    parts = parser.parse_args().parts
    report = json.loads(SAVED.read_text(encoding="utf-8")) if SAVED.exists() else {}
    report["machine"] = machine()
    if "windows" in parts:
        report["windows_ms"] = {}
        for window in _WINDOWS_MS:
            report["windows_ms"][str(window)] = _mesh_figures({"STREAMWAY_ADAPTER_FLUSH_MS": str(window)}, 600, 1)
            print(f"flush window {window} ms: {report['windows_ms'][str(window)]}", flush=True)
    if "connections" in parts:
        report["short_answers"] = {}
        for kept in ("true", "false"):
            environment = {"STREAMWAY_ADAPTER_ENGINE_KEEP_ALIVE": kept}
            report["short_answers"][kept] = _mesh_figures(environment, 2, _ROUNDS)
            print(f"short answers, connections kept: {kept}: {report['short_answers'][kept]}", flush=True)
        report["connection_ms"] = round(asyncio.run(_connect_ms()), 3)
    token_us, event_us = line([(row["events"], row["us"]) for row in report["windows_ms"].values()])
    short = report["short_answers"]
    costs = Costs(
        round(token_us, 1),
        round(event_us, 1),
        round(max(0.0, short["false"]["request_us"] - short["true"]["request_us"]), 1),
        report["connection_ms"],
    )
    print(costs)
    report["costs"] = asdict(costs)
    SAVED.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
