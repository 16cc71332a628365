"""Many streams come back at once: how long until each has its first replayed token, and what that costs the mesh.

    python -m benchmarks.resume --streams 1000
    python -m benchmarks.resume --streams 1000 --edges 2 --arms resume restore --repeats 3

Opens durable generations over a few WebSockets, lets them run to a part, drops the sockets, waits, and brings all of them
back in the same moment, in one of these ways:

    restore   one `restore` frame for each dropped WebSocket     resume   one `resume` frame for each generation
    one       all on one WebSocket, by one `restore`             grpc     one `Resume` call each, at the router
    sse       one HTTP request each, with `Last-Event-ID`

Connections are open before the clock starts; it runs from the moment a stream's request is written to the moment the bytes of
its first token are read. Then every stream is read to its end, and its whole text compared with what the simulated engine
answers to the prompt. The cost of a resumed stream is the CPU of the mesh in the two seconds that begin with the requests, less
what it used in two later seconds in which the same streams were only live.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc.aio
import uvloop

from benchmarks.accounting import cpu_seconds
from benchmarks.clients.plan import now
from benchmarks.clients.resuming import EventStream, Resumed, Socket, connect
from streamway.rpc.options import client_options
from streamway.v1 import router_pb2, router_pb2_grpc
from tests.support.mesh import MeshProcesses
from tests.support.simulated_text import simulated_answer

GRPC_CHANNELS: Final = 4
_WINDOW_S: Final = 2.0
_LIMIT_S: Final = 30.0
Options = argparse.Namespace


class Crowd:
    """The streams of one arm, on the WebSockets on which they were opened."""

    def __init__(self, options: Options, ready: dict[str, Any], turn: str) -> None:
        self._options = options
        self.url: str = ready["edge"]["url"]
        self.router: str = next(row["address"] for row in ready["processes"] if row["name"] == "router-0")
        self._pids = {row["name"]: row["pid"] for row in ready["processes"]}
        self.streams = [
            Resumed(f"[{turn}.{number}] How does a river find its way to the sea?", f"s{number}")
            for number in range(options.streams)
        ]
        self.sockets: list[Socket] = []
        self._holders: list[Any] = []

    async def live(self) -> None:
        """Opens them, and returns when each has some tokens."""
        count, options = self._options.connections, self._options
        self.sockets = await connect(self.url, count, lambda host, _: Socket(host))
        for number, stream in enumerate(self.streams):
            socket = self.sockets[number % count]
            socket.streams[stream.name] = stream
            socket.send(
                {
                    "type": "open",
                    "id": stream.name,
                    "model": "simulated",
                    "messages": [{"role": "user", "content": stream.prompt}],
                    "params": {"max_tokens": options.tokens},
                    "durability": options.durability,
                }
            )
            await asyncio.sleep(options.ramp_s / len(self.streams))
        await _until(lambda: all(stream.position >= 4 or stream.ended for stream in self.streams))

    def drop(self) -> list[Socket]:
        """Cuts the sockets. What they had, by restore id."""
        for socket in self.sockets:
            socket.transport.abort()
        return self.sockets

    def hold(self, *holders: Any) -> None:
        """From now on what comes is only noted."""
        for holder in holders:
            holder.held = True
        self._holders += holders

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU so far of each process."""
        return {name: cpu_seconds(pid) for name, pid in self._pids.items()}

    async def measured(self, go: Callable[[], Awaitable[None] | None]) -> dict[str, float]:
        """Runs `go` and says what a resumed stream cost each process, in µs of CPU."""
        gc.collect()
        gc.freeze()
        before = self.cpu()
        started = now()
        waiting = go()
        if waiting is not None:
            await waiting
        await asyncio.sleep(started + _WINDOW_S - now())
        burst = self.cpu()
        for holder in self._holders:
            holder.release()
        await _until(lambda: all(stream.first or stream.ended for stream in self.streams))
        await asyncio.sleep(0.5)
        calm = self.cpu()
        await asyncio.sleep(_WINDOW_S)
        after = self.cpu()
        count = len(self.streams)
        return {name: (burst[name] - before[name] - after[name] + calm[name]) / count * 1e6 for name in before}

    async def whole(self) -> None:
        """Waits until every stream has ended, and notes where a text is not the whole one."""
        await _until(lambda: all(stream.ended for stream in self.streams))
        for stream in self.streams:
            if stream.text != simulated_answer(stream.prompt, self._options.tokens):
                stream.faults.append("text")


async def by_restore(crowd: Crowd, dropped: list[Socket], *, connections: int) -> dict[str, float]:
    """Every dropped connection by its restore id, on as many new ones."""
    sockets = await connect(crowd.url, connections, lambda host, _: Socket(host))
    crowd.hold(*sockets)

    def go() -> None:
        for number, old in enumerate(dropped):
            socket = sockets[number % connections]
            socket.streams.update(old.streams)
            after = {stream.generation: stream.cursor for stream in old.streams.values()}
            sent = now()
            for stream in old.streams.values():
                stream.sent = sent
            socket.send({"type": "restore", "restore_id": old.restore_id, "after": after})

    return await crowd.measured(go)


async def by_resume(crowd: Crowd, dropped: list[Socket]) -> dict[str, float]:
    """A `resume` frame for each generation."""
    sockets = await connect(crowd.url, len(dropped), lambda host, _: Socket(host))
    crowd.hold(*sockets)

    def go() -> None:
        for socket, old in zip(sockets, dropped, strict=True):
            socket.streams = old.streams
            sent = now()
            frames = []
            for stream in old.streams.values():
                stream.sent = sent
                frame = {"type": "resume", "id": stream.name, "generation": stream.generation, "after": stream.cursor}
                frames.append(frame)
            socket.send(*frames)

    return await crowd.measured(go)


async def by_sse(crowd: Crowd, _: list[Socket]) -> dict[str, float]:
    """A request for each generation, on a connection of its own."""
    readers = await connect(
        crowd.url, len(crowd.streams), lambda host, number: EventStream(host, crowd.streams[number])
    )
    crowd.hold(*readers)

    def go() -> None:
        for stream, reader in zip(crowd.streams, readers, strict=True):
            stream.sent = now()
            reader.ask()

    return await crowd.measured(go)


async def by_grpc(crowd: Crowd, _: list[Socket]) -> dict[str, float]:
    """A `Resume` call for each generation, on a few HTTP/2 connections. This client works while it measures."""
    options = [*client_options(32 * 1024 * 1024), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(crowd.router, options=options) for _ in range(GRPC_CHANNELS)]
    stubs = [router_pb2_grpc.RouterServiceStub(channel) for channel in channels]
    for channel in channels:
        await channel.channel_ready()

    async def one(number: int, stream: Resumed) -> None:
        request = router_pb2.ResumeRequest(generation=stream.generation, cursor=stream.cursor)
        stream.sent = now()
        async for response in stubs[number % GRPC_CHANNELS].Resume(request):
            at = now()
            for event in response.events:
                stream.take_event(event, at)

    async with asyncio.TaskGroup() as group:

        def go() -> None:
            for number, stream in enumerate(crowd.streams):
                group.create_task(one(number, stream))

        cost = await crowd.measured(go)
    for channel in channels:
        await channel.close()
    return cost


async def run_arm(arm: str, options: Options, ready: dict[str, Any], repeat: int) -> dict[str, Any]:
    """One arm from the first `open` to the last end; its figures. Times in ms, CPU in µs for each resumed stream."""
    crowd = Crowd(options, ready, f"{arm}.{repeat}")
    await crowd.live()
    dropped = crowd.drop()
    await asyncio.sleep(options.away_s)
    replayed = {stream.name: stream.position for stream in crowd.streams}
    own = resource.getrusage(resource.RUSAGE_SELF)
    if arm in ("restore", "one"):
        cost = await by_restore(crowd, dropped, connections=1 if arm == "one" else len(dropped))
    else:
        cost = await {"resume": by_resume, "sse": by_sse, "grpc": by_grpc}[arm](crowd, dropped)
    used = resource.getrusage(resource.RUSAGE_SELF)
    await crowd.whole()
    waits = sorted((stream.first - stream.sent) * 1000 for stream in crowd.streams if stream.first)
    faults = sorted({fault for stream in crowd.streams for fault in stream.faults})
    return {
        "arm": arm,
        "p50": _at(waits, 50),
        "p99": _at(waits, 99),
        "max": waits[-1] if waits else 0.0,
        "cpu": {group: sum(v for n, v in cost.items() if n.startswith(group)) for group in GROUPS},
        "client_ms": (used.ru_utime + used.ru_stime - own.ru_utime - own.ru_stime) * 1000,
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
        f"| {row['arm']} | {row['p50']:.0f} | {row['p99']:.0f} | {row['max']:.0f} | {cpu}"
        f" | {row['recovered']:,} | {row['whole']:,} of {streams:,}{faults} |"
    )


def _at(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


async def _until(reached: Callable[[], bool]) -> None:
    """Waits for a condition, for `_LIMIT_S` at the most: a stream that never comes is a figure, not a hanging benchmark."""
    until = now() + _LIMIT_S
    while not reached() and now() < until:
        await asyncio.sleep(0.05)


async def run(options: Options, ready: dict[str, Any]) -> None:
    """All arms, as often as asked; prints a table."""
    print(
        f"{options.streams} streams on {options.connections} WebSockets, {options.tokens_per_s:g} tokens/s each, away for "
        f"{options.away_s:g} s; edges: {options.edges}\n\n"
        "| way back | p50 ms | p99 ms | max ms | " + " | ".join(f"{group} µs" for group in GROUPS) + " | recovered"
        " | whole text |\n|---|---|---|---|" + "---|" * len(GROUPS) + "---|---|",
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
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--edges", type=int, default=1)
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
            arguments=("--edges", str(options.edges)),
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


ARMS: Final = ("restore", "one", "resume", "grpc", "sse")

if __name__ == "__main__":
    main()
