"""CPU a token of a worker's own path, without and with a response channel.

    python -m benchmarks.adapter_path --streams 1000 --rate 20 --seconds 10

An engine that costs next to nothing makes a token for each stream at the rate asked for; the worker numbers, journals and
sends them; a reader in another process takes them from one Attach stream. Counted is the worker's process alone, from when
every stream has its first token. The store is a process of its own, and so is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import secrets
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from services.inference_adapter.app import Adapter
from services.inference_adapter.interfaces import EngineInfo, EngineLoad, EngineModel, EngineSink
from services.inference_adapter.settings import AdapterSettings
from streamway.attach import AttachClient
from streamway.config import SharedSettings
from streamway.journal import ChoiceSoFar, Cursor, Entry, Kind, encode_events
from streamway.lanes import NewTask, TaskCopy, add_generations
from streamway.runtime import collector
from streamway.runtime.ids import new_generation_id
from streamway.runtime.tasks import TaskScope
from streamway.telemetry import logging
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import Durability
from streamway.v1.inference_pb2 import View
from streamway.valkey import keys
from streamway.valkey.connection import Valkey, connect
from tests.support.valkey_server import ValkeyServer

_WORKER: Final = "bench"
_TURN_S: Final = 0.5
_MODES: Final = {name: Durability.Value(f"DURABILITY_{name.upper()}") for name in ("off", "relaxed", "strict")}


class Call:
    """One stream of the engine."""

    def __init__(self, sink: EngineSink) -> None:
        self.sink = sink

    def abort(self) -> None:
        """There is nothing to stop."""


class MetronomeEngine:
    """A `Backend` that makes a token of every call when `beat` is called."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.calls: list[Call] = []

    async def start(self) -> None:
        """Ready at once."""

    def info(self) -> EngineInfo:
        return EngineInfo("simulated", "", (EngineModel("bench", 0),), self._slots)

    def call(self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None) -> Call:
        call = Call(sink)
        self.calls.append(call)
        sink_started = sink.started
        asyncio.get_running_loop().call_soon(sink_started)
        return call

    async def load(self) -> EngineLoad:
        return EngineLoad(len(self.calls), 0)

    async def park(self) -> None:
        """Nothing of it can be used elsewhere."""

    async def failed(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """There is nothing to close."""

    def beat(self, calls: list[Call]) -> None:
        for call in calls:
            call.sink.piece(0, " token")


class _Counter:
    """An AttachSink that only counts."""

    def __init__(self) -> None:
        self.units = 0

    def event(self, event: common_pb2.Event, kind: str) -> None:
        if kind == "token":
            self.units += event.token.units

    def lost(self, error: Exception, delivered_until: int) -> None:
        print("lost", error)

    def gap(self) -> None:
        print("gap")


def _read(address: str, generations: list[str], ready: multiprocessing.synchronize.Event) -> None:
    """The other process: reads until it is ended."""

    async def run() -> None:
        async with TaskScope("reader") as scope:
            client = AttachClient(address, _WORKER, SharedSettings(), scope)
            sink = _Counter()
            for generation in generations:
                client.subscribe(generation, Cursor(0, 1), View.VIEW_LIVE, sink)
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(run())


async def measure(
    url: str, modes: Sequence[str], streams: int, rate: float, seconds: float, flush_ms: float = 20.0
) -> dict[str, list[float]]:
    """Microseconds of CPU a token of each mode, once for each of its turns: modes take turns of half a second, so that what
    else happens on the machine hits all of them alike."""
    valkey = await connect(url)
    engine = MetronomeEngine(streams * len(modes))
    # Between its turns, and while the others are set up, a mode is silent for longer than any engine may be.
    settings = AdapterSettings(
        worker=_WORKER,
        port=0,
        operations_port=0,
        orphan_grace_s=3600,
        token_gap_s=0,
        first_token_timeout_s=0,
        flush_ms=flush_ms,
        # Always the same wait: what it costs is measured, not when it is chosen.
        flush_late_ms=1,
    )
    adapter = Adapter(settings, SharedSettings(valkey_url=SecretStr(url)), engine)
    await adapter.start()
    collector.settle()
    found: dict[str, list[float]] = {name: [] for name in modes}
    readers: list[multiprocessing.context.SpawnProcess] = []
    try:
        parts: dict[str, list[list[Call]]] = {}
        for name in modes:
            before = len(engine.calls)
            readers.append(await _read_all(adapter.address, await _enqueue(valkey, _MODES[name], streams)))
            while len(engine.calls) < before + streams:
                await asyncio.sleep(0.05)
            # Streams do not march in step: a twentieth of them each twentieth of the interval.
            parts[name] = [engine.calls[before + at :: 20] for at in range(20)]
            await _play(engine, parts[name], rate, 1.0)
        for _ in range(int(seconds / _TURN_S)):
            for name in modes:
                await asyncio.sleep(0.1)
                cpu, tokens = time.process_time(), await _play(engine, parts[name], rate, _TURN_S)
                found[name].append((time.process_time() - cpu) / tokens * 1e6)
    finally:
        for reader in readers:
            reader.terminate()
            reader.join()
        await adapter.close()
        await valkey.aclose()
    return found


async def _read_all(address: str, generations: list[str]) -> multiprocessing.context.SpawnProcess:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    reader = context.Process(target=_read, args=(address, generations, ready), daemon=True)
    reader.start()
    while not ready.is_set():
        await asyncio.sleep(0.05)
    return reader


async def _play(engine: MetronomeEngine, parts: list[list[Call]], rate: float, seconds: float) -> int:
    """Makes tokens for so long; returns how many. A machine that is too slow makes fewer."""
    step = 1.0 / rate / len(parts)
    begun = time.monotonic()
    tokens = beats = 0
    while time.monotonic() - begun < seconds:
        part = parts[beats % len(parts)]
        engine.beat(part)
        tokens += len(part)
        beats += 1
        await asyncio.sleep(max(0.0, begun + beats * step - time.monotonic()))
    return tokens


async def _enqueue(valkey: Valkey, durability: Durability.ValueType, streams: int) -> list[str]:
    tasks = []
    for _ in range(streams):
        request = common_pb2.GenerationRequest(generation=new_generation_id(), model="bench", durability=durability)
        request.messages.add(role="user", content="hello")
        copy = TaskCopy(request.generation, 1, secrets.token_hex(8))
        tasks.append(NewTask(request, _WORKER, copy, int(time.time() * 1000)))
        if durability != Durability.DURABILITY_OFF:
            accepted = Entry(0, 1, 1, Kind.ACCEPTED, encode_events([common_pb2.Event(accepted=common_pb2.Accepted())]))
            fields = accepted.fields()
            named: dict[Any, Any] = dict(zip(fields[::2], fields[1::2], strict=True))
            await valkey.xadd(keys.response(request.generation), named, id="0-1")
    await add_generations(valkey, tasks)
    return [task.request.generation for task in tasks]


async def main() -> None:
    """Prints the median and the least turn of each mode, and the median ratio of neighbouring turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000, help="of each mode")
    parser.add_argument("--rate", type=float, default=20.0, help="tokens a second and stream")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each mode, in turns of half a second")
    parser.add_argument(
        "--modes", nargs="+", choices=list(_MODES), default=list(_MODES), help="the first is the measure"
    )
    parser.add_argument(
        "--flush-ms", type=float, default=20.0, help="how long a token waits for others, in milliseconds"
    )
    arguments = parser.parse_args()
    logging.configure("adapter", "warning", "text")
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            found = await measure(
                server.url,
                arguments.modes,
                arguments.streams,
                arguments.rate,
                arguments.seconds,
                arguments.flush_ms,
            )
        finally:
            server.stop()
    first = arguments.modes[0]
    print(f"{'mode':8} {'median':>8} {'least':>8} {'× ' + first:>10}   µs of CPU a token, {arguments.streams} streams")
    for name, costs in found.items():
        ratio = statistics.median(cost / base for cost, base in zip(costs, found[first], strict=True))
        print(f"{name:8} {statistics.median(costs):8.2f} {min(costs):8.2f} {ratio:10.2f}")


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
