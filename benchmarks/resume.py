"""Many streams come back at once: how long until each has its first replayed token, and what that costs the mesh.

    python -m benchmarks.resume --streams 1000
    python -m benchmarks.resume --streams 1000 --edges 2 --routers 2 --arms resume restore connect --repeats 3

Opens durable generations over a few WebSockets, lets them run to a part, drops the sockets, waits, and brings all of them
back in the same moment, in one of these ways:

    restore   one `restore` frame for each dropped WebSocket     resume   one `resume` frame for each generation
    one       all on one WebSocket, one `restore` frame          connect  one `read_on` command each, on gRPC `Connect` streams
    sse       one HTTP request each, with `Last-Event-ID`        grpc     one `Resume` call each, at the routers

Connections are open before the clock starts; it runs from the moment a stream's request is written to the moment the bytes of
its first token are read. Then every stream is read to its end, and its whole text compared with what the simulated engine
answers to the prompt. The cost of a resumed stream is the CPU of the mesh in the two seconds that begin with the requests, less
what it used in two later seconds in which the same streams were only live. The client's is that of the two seconds, and "others"
is the part of the machine that everything else used in them: where that is much, the times say little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.ways_back import WAYS, Crowd, Options
from tests.support.mesh import MeshProcesses


async def run_arm(arm: str, options: Options, ready: dict[str, Any], repeat: int) -> dict[str, Any]:
    """One arm from the first `open` to the last end; its figures. Times in ms, CPU in µs for each resumed stream."""
    crowd = Crowd(options, ready, f"{arm}.{repeat}", 1 if arm == "one" else options.connections)
    await crowd.live()
    dropped = crowd.drop()
    await asyncio.sleep(options.away_s)
    replayed = {stream.name: stream.position for stream in crowd.streams}
    cost = await WAYS[arm](crowd, dropped)
    await crowd.whole()
    waits = sorted((stream.first - stream.sent) * 1000 for stream in crowd.streams if stream.first)
    faults = sorted({fault for stream in crowd.streams for fault in stream.faults})
    return {
        "arm": arm,
        "p50": _at(waits, 50),
        "p99": _at(waits, 99),
        "max": waits[-1] if waits else 0.0,
        "cpu": {group: sum(v for n, v in cost.items() if n.startswith(group)) for group in GROUPS},
        "client": crowd.client_s / len(crowd.streams) * 1e6,
        "others": crowd.others,
        "recovered": sum(stream.recovered for stream in crowd.streams),
        "whole": sum(not stream.faults for stream in crowd.streams),
        "faults": faults,
        "replay_from": sum(replayed.values()) / len(replayed),
    }


GROUPS: Final = ("edge", "router", "adapter", "valkey")


def line(row: dict[str, Any], streams: int) -> str:
    """One row of the Markdown table."""
    cpu = " | ".join(f"{row['cpu'][group]:.0f}" for group in GROUPS)
    faults = f" ({', '.join(row['faults'])})" if row["faults"] else ""
    return (
        f"| {row['arm']} | {row['p50']:.0f} | {row['p99']:.0f} | {row['max']:.0f} | {cpu} | {row['client']:.0f}"
        f" | {row['others']:.0%} | {row['recovered']:,} | {row['whole']:,} of {streams:,}{faults} |"
    )


def _at(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


async def run(options: Options, ready: dict[str, Any]) -> None:
    """All arms, as often as asked; prints a table."""
    print(
        f"{options.streams} streams on {options.connections} WebSockets, {options.tokens_per_s:g} tokens/s each, away for "
        f"{options.away_s:g} s; edges: {options.edges}, routers: {options.routers}\n\n"
        "| way back | p50 ms | p99 ms | max ms | "
        + " | ".join(f"{group} µs" for group in GROUPS)
        + " | client µs | others | recovered | whole text |\n|---|---|---|---|"
        + "---|" * len(GROUPS)
        + "---|---|---|---|",
        flush=True,
    )
    for repeat in range(options.repeats):
        for arm in options.arms:
            print(line(await run_arm(arm, options, ready, repeat), options.streams), flush=True)


def main() -> None:
    """Parses the command line, starts a mesh unless one is given, measures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resume", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=10, help="WebSockets they are opened on")
    parser.add_argument("--arms", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--edges", type=int, default=1)
    parser.add_argument(
        "--routers", type=int, default=1, help="that the streams of `connect` and `grpc` are spread over"
    )
    parser.add_argument(
        "--tokens-per-s", type=float, default=2.0, help="of each stream; all are live while they resume"
    )
    parser.add_argument("--tokens", type=int, default=30, help="of each answer")
    parser.add_argument("--away-s", type=float, default=2.0, help="between the cut and the return")
    parser.add_argument("--ramp-s", type=float, default=3.0, help="over which the streams are opened")
    parser.add_argument("--durability", choices=["relaxed", "strict"], default="relaxed")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--ready-file", type=Path, help="of a mesh that runs already, with the simulated engine")
    options = parser.parse_args()
    if options.ready_file is not None:
        uvloop.run(run(options, json.loads(options.ready_file.read_text(encoding="utf-8"))))
        return
    with tempfile.TemporaryDirectory() as folder:
        mesh = MeshProcesses(
            Path(folder),
            arguments=("--edges", str(options.edges), "--routers", str(options.routers)),
            environment={
                "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S": str(options.tokens_per_s),
                "STREAMWAY_ADAPTER_SIMULATION__SLOTS": str(2 * options.streams),
                "STREAMWAY_LOG_LEVEL": "warning",
            },
        )
        try:
            uvloop.run(run(options, mesh.ready))
        finally:
            mesh.close()


if __name__ == "__main__":
    main()
