"""What tracing costs on the whole path, in one process: edge, router and worker with a simulated engine, and a WebSocket client.

    python -m benchmarks.tracing_inside --streams 40 --tokens 100 --repeats 7

One such mesh for each arm (traces off; none, one in a hundred, all sampled), each with its own Valkey, all up the whole time,
measured in turn. It is CPU time of the process, client and engine included, so ratios are smaller than those of the mesh alone;
`benchmarks.tracing` measures real processes. Spans are exported to a receiver in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.run import RESULTS
from services.edge.app import Edge
from services.edge.settings import EdgeSettings
from services.inference_adapter.app import Adapter
from services.inference_adapter.settings import AdapterSettings
from services.router.app import RouterApp
from services.router.settings import RouterSettings
from streamway.config import SharedSettings
from streamway.telemetry import logging
from tests.support.clients import Frames, frames
from tests.support.two_workers import simulated
from tests.support.valkey_server import ValkeyServer

_ARMS: Final[dict[str, float | None]] = {"off": None, "0 %": 0.0, "1 %": 0.01, "100 %": 1.0}
_RECEIVE: Final = """
import time
from tests.support.otlp_receiver import Receiver
with Receiver() as receiver:
    print(receiver.environment["OTEL_EXPORTER_OTLP_ENDPOINT"], flush=True)
    time.sleep(3600)
"""


class _Arm:
    """One mesh; `url` is its WebSocket."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.costs: list[float] = []

    async def run(self, streams: int, tokens: int) -> None:
        """Notes the CPU time of one token, in µs."""
        began = time.process_time()
        async with frames(self.url) as client:
            for number in range(streams):
                await client.open(str(number), f"{number}", cache="off", params={"max_tokens": tokens})
            await _ended(client, streams)
        self.costs.append((time.process_time() - began) / (streams * tokens) * 1e6)


async def _ended(client: Frames, streams: int) -> None:
    while streams:
        frame = await client.receive(60)
        if frame["type"] == "error":
            raise SystemExit(f"a stream failed: {frame['reason']}")
        streams -= frame["type"] == "finished"


async def _mesh(stack: AsyncExitStack, folder: Path, name: str, ratio: float | None) -> _Arm:
    valkey = ValkeyServer(folder)
    stack.callback(valkey.stop)
    given = {"valkey_url": valkey.url, "traces": ratio is not None, "traces_ratio": ratio or 0.0}
    shared = SharedSettings.model_validate(given)
    adapter = Adapter(AdapterSettings(worker=name, port=0, operations_port=0), shared, simulated(rate=100.0))
    router = RouterApp(RouterSettings(port=0, operations_port=0, id=f"r-{name}", poll_s=0.1), shared)
    edge = Edge(EdgeSettings(port=0, operations_port=0), shared)
    for service in (adapter, router, edge):
        await service.start()
        stack.push_async_callback(service.close)
    return _Arm(f"ws://{edge.address}/v1/stream")


async def _measure(options: argparse.Namespace) -> dict[str, _Arm]:
    async with AsyncExitStack() as stack:
        arms = {}
        for number, (name, ratio) in enumerate(_ARMS.items()):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            arms[name] = await _mesh(stack, folder, f"w{number}", ratio)
        await asyncio.sleep(1.0)  # until every edge has its router, and every router its worker
        for arm in arms.values():
            await arm.run(2, 10)
            arm.costs.clear()
        for repeat in range(options.repeats):
            for name in list(arms) if repeat % 2 == 0 else list(reversed(arms)):
                await arms[name].run(options.streams, options.tokens)
                print(
                    f"round {repeat + 1}/{options.repeats}  {name:6} {arms[name].costs[-1]:6.1f} µs a token", flush=True
                )
        return arms


def main() -> None:
    """Measures, prints a table, writes `results/tracing_inside.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing_inside", description=__doc__)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    receiver = subprocess.Popen([sys.executable, "-c", _RECEIVE], stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout is not None
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.stdout.readline().strip()
        logging.configure("bench", "warning", "console")
        arms = uvloop.run(_measure(options))
    finally:
        receiver.terminate()
        receiver.wait()
    off = arms["off"].costs
    rows: list[dict[str, Any]] = []
    print("\n| traces | µs of CPU a token | ratio to the same round without |\n|---|---|---|")
    for name, arm in arms.items():
        ratios = [mine / base for mine, base in zip(arm.costs, off, strict=True)]
        rows.append({"traces": name, "us": statistics.median(arm.costs), "ratios": ratios})
        middle = statistics.median(ratios)
        print(f"| {name} | {statistics.median(arm.costs):.1f} | {middle:.2f} [{min(ratios):.2f}–{max(ratios):.2f}] |")
    report = {"options": vars(options), "arms": rows}
    (RESULTS / "tracing_inside.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
