"""How many connections and generations one machine holds, what each takes of memory, and how first tokens fare meanwhile.

    python -m benchmarks.connections --live 5000 10000 --edges 2
    python -m benchmarks.connections --multiplexed 10000 --idle 50000 --edges 4 --clients 4

    live          a WebSocket each, one answer on it, --rate tokens/s, durable: sessions that talk slowly; with --rest as many
                  whole answers over HTTP too, whose first token is there when the last one is
    multiplexed   all generations on one WebSocket, and all on one gRPC `Connect` call
    idle          WebSockets that only answer heartbeats; memory with all of them, and after they have closed

Memory is the proportional set size of every process of the mesh, the most while the load runs, less what the mesh took before.
The engine is the simulated one inside the worker, and its share is in the figures. A process may hold as many files as
`ulimit -n` says: more connections than that need several edges and clients.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.accounting import cpu_seconds, memory_bytes
from benchmarks.clients.plan import PORTS
from tests.support.mesh import MeshProcesses

# What the simulated engine may have.
_MOST_SLOTS: Final = 65_536
_HOLD_S: Final = 20
_SPARE_FILES: Final = 500
_PROMPT_TOKENS: Final = 64


@dataclass(frozen=True)
class Load:
    """`count` connections or generations of a surface, spread over `clients` processes."""

    name: str
    surface: str
    count: int
    clients: int
    tokens: int
    ramp_s: float
    rate: float


def measure(mesh: MeshProcesses, load: Load) -> dict[str, Any]:
    """One row."""
    pids = [row["pid"] for row in mesh.ready["processes"]]
    target = mesh.address("router-0") if load.surface == "grpc" else mesh.edge_url
    before, cpu = sum(map(memory_bytes, pids)), sum(map(cpu_seconds, pids))
    started = time.monotonic()
    seconds_each = load.tokens / (1 if load.surface == "idle" else load.rate)
    # fmt: off
    command = [
        sys.executable, "-m", "benchmarks.load", "--surface", load.surface, "--target", target,
        "--streams", str(load.count // load.clients), "--tokens", str(load.tokens), "--ramp-s", str(load.ramp_s),
        "--limit-s", str(load.ramp_s + seconds_each + 90),
    ]
    # fmt: on
    # Each client has source addresses of its own: one has ports for 28,000 connections.
    apart = 1 + load.count // load.clients // PORTS
    clients = [
        subprocess.Popen([*command, "--source", str(2 + number * apart)], stdout=subprocess.PIPE)
        for number in range(load.clients)
    ]
    peak = before
    while any(client.poll() is None for client in clients):
        peak = max(peak, sum(map(memory_bytes, pids)))
        time.sleep(1.0)
    seconds = time.monotonic() - started
    found = [json.loads(client.communicate()[0]) for client in clients]
    spent = sum(map(cpu_seconds, pids)) - cpu
    time.sleep(5.0)
    errors: dict[str, int] = {}
    for one in found:
        for what, number in one["errors"].items():
            errors[what] = errors.get(what, 0) + number
    tokens = sum(one["tokens"] for one in found)
    return {
        "name": load.name,
        "count": load.count,
        "kb": (peak - before) / load.count / 1000,
        "left_mb": (sum(map(memory_bytes, pids)) - before) / 1e6,
        "ttft": max((one["ttft_ms"].get("p95", 0.0) for one in found), default=0.0),
        "tokens_per_s": sum(one["tokens_per_s"] for one in found),
        "us_a_token": spent / tokens * 1e6 if tokens else 0.0,
        "cores": spent / seconds,
        "finished": sum(one["finished"] for one in found),
        "errors": errors,
    }


def line(row: dict[str, Any]) -> str:
    """A row of the Markdown table."""
    return (
        f"| {row['name']} | {row['count']:,} | {row['kb']:.1f} | {row['left_mb']:.0f} | {row['ttft']:,.0f}"
        f" | {row['tokens_per_s']:,} | {row['us_a_token']:.0f} | {row['cores']:.2f} | {row['finished']:,}"
        f" | {row['errors'] or 0} |"
    )


def loads(options: argparse.Namespace) -> list[Load]:
    """What was asked for."""
    found = []
    for count in options.live:
        arms = [("live, a WebSocket each", "websocket"), *([("whole answers, REST", "rest")] if options.rest else [])]
        ramp_s = count / options.opened_a_second
        found += [
            Load(name, surface, count, options.clients, options.tokens, ramp_s, options.rate) for name, surface in arms
        ]
    for count in options.multiplexed:
        ramp_s = count / options.opened_a_second
        found += [
            Load(f"live, all on one {name}", surface, count, 1, options.tokens, ramp_s, options.rate)
            for name, surface in (("WebSocket", "one_websocket"), ("Connect call", "grpc"))
        ]
    found += [
        Load("idle WebSockets", "idle", count, options.clients, _HOLD_S, count / options.opened_a_second, 1.0)
        for count in options.idle
    ]
    return found


def main() -> None:
    """Parses the command line, starts a mesh, measures, prints a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.connections",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--live", type=int, nargs="*", default=[])
    parser.add_argument("--rest", action="store_true", help="ask the live ones over REST too")
    parser.add_argument("--multiplexed", type=int, nargs="*", default=[])
    parser.add_argument("--idle", type=int, nargs="*", default=[])
    parser.add_argument("--tokens", type=int, default=60, help="of each answer")
    parser.add_argument("--rate", type=float, default=2.0, help="tokens/s of each answer")
    parser.add_argument("--opened-a-second", type=float, default=400.0)
    parser.add_argument("--edges", type=int, default=2)
    parser.add_argument("--clients", type=int, default=2, help="processes that the connections are spread over")
    options = parser.parse_args()
    asked = loads(options)
    if not asked:
        parser.error("say what to hold: --live, --multiplexed or --idle, each with numbers")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES
    for load in asked:
        edges = 1 if load.surface in ("one_websocket", "grpc") else options.edges
        if load.surface not in ("one_websocket", "grpc") and load.count > files * min(edges, load.clients):
            parser.error(
                f"{load.count} connections need {load.count // files + 1} --edges and --clients: {files} files each"
            )
    most = max(load.count for load in asked)
    environment = {
        "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S": str(options.rate),
        "STREAMWAY_ADAPTER_SIMULATION__SLOTS": str(min(2 * most, _MOST_SLOTS)),
        # Room for all of them at once, or the rest would wait for it and not for the mesh.
        "STREAMWAY_ADAPTER_SIMULATION__KV_TOKENS": str(2 * most * (options.tokens + _PROMPT_TOKENS)),
        # One that carries all of them would be drained when the first ends.
        "STREAMWAY_EDGE_CONNECTION_REQUESTS": "0",
        "STREAMWAY_LOG_LEVEL": "warning",
    }
    with tempfile.TemporaryDirectory() as folder:
        mesh = MeshProcesses(
            Path(folder), arguments=("--edges", str(options.edges)), environment=environment, start_s=240
        )
        try:
            print(
                "| what | how many | KB each | MB more 5 s after | first token p95 ms | tokens/s | µs a token | cores |"
                " finished | errors |\n" + "|---" * 10 + "|",
                flush=True,
            )
            for load in asked:
                print(line(measure(mesh, load)), flush=True)
        finally:
            mesh.close()


if __name__ == "__main__":
    main()
