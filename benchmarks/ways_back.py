"""A crowd of streams that are cut off, and the ways in which it comes back."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc.aio

from benchmarks.accounting import busy_seconds, cpu_seconds
from benchmarks.clients.plan import now
from benchmarks.clients.resuming import EventStream, Resumed, Socket, connect
from streamway.rpc.options import client_options
from streamway.v1 import router_pb2, router_pb2_grpc
from tests.support.simulated_text import simulated_answer

GRPC_CHANNELS: Final = 4
_WINDOW_S: Final = 2.0
_LIMIT_S: Final = 30.0
Options = argparse.Namespace


class Crowd:
    """The streams of one arm, on the WebSockets on which they were opened."""

    def __init__(self, options: Options, ready: dict[str, Any], turn: str, connections: int) -> None:
        self._options = options
        self._connections = connections
        self.url: str = ready["edge"]["url"]
        self.routers: list[str] = [row["address"] for row in ready["processes"] if row["name"].startswith("router-")]
        self._pids = {row["name"]: row["pid"] for row in ready["processes"]}
        self.streams = [
            Resumed(f"[{turn}.{number}] How does a river find its way to the sea?", f"s{number}")
            for number in range(options.streams)
        ]
        self.sockets: list[Socket] = []
        # In the window that is measured: the part of the machine that others used, 0 … 1, and this client's seconds of CPU.
        self.others = 0.0
        self.client_s = 0.0
        self._holders: list[Any] = []

    async def live(self) -> None:
        """Opens them, and returns when each has some tokens."""
        count, options = self._connections, self._options
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
        before, busy, own = self.cpu(), busy_seconds(), cpu_seconds(os.getpid())
        started = now()
        waiting = go()
        if waiting is not None:
            await waiting
        await asyncio.sleep(started + _WINDOW_S - now())
        burst = self.cpu()
        self.client_s = cpu_seconds(os.getpid()) - own
        ours = self.client_s + sum(burst.values()) - sum(before.values())
        self.others = max(0.0, busy_seconds() - busy - ours) / (os.cpu_count() or 1) / (now() - started)
        for holder in self._holders:
            holder.release()
        await _until(lambda: all(stream.first or stream.ended for stream in self.streams))
        await asyncio.sleep(0.5)
        calm = self.cpu()
        await asyncio.sleep(_WINDOW_S)
        after = self.cpu()
        count = len(self.streams)
        return {name: (burst[name] - before[name] - after[name] + calm[name]) / count * 1e6 for name in before}

    async def ended(self) -> None:
        """Waits until every stream has."""
        await _until(lambda: all(stream.ended for stream in self.streams))

    async def whole(self) -> None:
        """Waits for the ends, and notes where a text is not the whole one."""
        await self.ended()
        for stream in self.streams:
            if stream.text != simulated_answer(stream.prompt, self._options.tokens):
                stream.faults.append("text")


async def by_restore(crowd: Crowd, dropped: list[Socket]) -> dict[str, float]:
    """Every dropped connection by its restore id, on as many new ones."""
    sockets = await connect(crowd.url, len(dropped), lambda host, _: Socket(host))
    crowd.hold(*sockets)

    writes: list[bytes] = []
    for socket, old in zip(sockets, dropped, strict=True):
        socket.streams = old.streams
        after = {stream.generation: stream.cursor for stream in old.streams.values()}
        writes.append(Socket.frames({"type": "restore", "restore_id": old.restore_id, "after": after}))
    return await crowd.measured(lambda: _write(sockets, writes))


async def by_resume(crowd: Crowd, dropped: list[Socket]) -> dict[str, float]:
    """A `resume` frame for each generation."""
    sockets = await connect(crowd.url, len(dropped), lambda host, _: Socket(host))
    crowd.hold(*sockets)

    writes: list[bytes] = []
    for socket, old in zip(sockets, dropped, strict=True):
        socket.streams = old.streams
        commands = [
            {"type": "resume", "id": stream.name, "generation": stream.generation, "after": stream.cursor}
            for stream in old.streams.values()
        ]
        writes.append(Socket.frames(*commands))
    return await crowd.measured(lambda: _write(sockets, writes))


def _write(sockets: list[Socket], writes: list[bytes]) -> None:
    """Asks for everything, on one socket after the other."""
    for socket, data in zip(sockets, writes, strict=True):
        sent = now()
        for stream in socket.streams.values():
            stream.sent = sent
        socket.transport.write(data)


async def by_sse(crowd: Crowd, _: list[Socket]) -> dict[str, float]:
    """A request for each generation, on a connection of its own."""
    readers = await connect(
        crowd.url, len(crowd.streams), lambda host, number: EventStream(host, crowd.streams[number])
    )
    crowd.hold(*readers)

    requests = [reader.request() for reader in readers]

    def go() -> None:
        for stream, reader, request in zip(crowd.streams, readers, requests, strict=True):
            stream.sent = now()
            reader.transport.write(request)

    return await crowd.measured(go)


async def by_connect(crowd: Crowd, _: list[Socket]) -> dict[str, float]:
    """A `read_on` command for each generation, on a few `Connect` streams. This client works while it measures."""
    named = {stream.generation: stream for stream in crowd.streams}
    channels, stubs = await _routers(crowd)
    calls = [stub.Connect() for stub in stubs]

    async def read(call: Any) -> None:
        async for response in call:
            at = now()
            for event in response.events:
                named[event.generation].take_event(event, at)

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read(call)) for call in calls]
        shares = [crowd.streams[number::GRPC_CHANNELS] for number in range(GRPC_CHANNELS)]
        batches = [router_pb2.ConnectRequest(commands=[_read_on(stream) for stream in share]) for share in shares]

        async def go() -> None:
            for call, share, batch in zip(calls, shares, batches, strict=True):
                sent = now()
                for stream in share:
                    stream.sent = sent
                await call.write(batch)

        cost = await crowd.measured(go)
        await crowd.ended()
        for call in calls:
            await call.done_writing()
        await asyncio.wait(readers, timeout=5)
        for call in calls:
            call.cancel()
    for channel in channels:
        await channel.close()
    return cost


def _read_on(stream: Resumed) -> router_pb2.ConnectCommand:
    request = router_pb2.ResumeRequest(generation=stream.generation, cursor=stream.cursor)
    return router_pb2.ConnectCommand(read_on=router_pb2.ReadOn(request=request))


async def _routers(crowd: Crowd) -> tuple[list[grpc.aio.Channel], list[Any]]:
    """Connections of their own, one router after the other, and stubs on them."""
    options = [*client_options(32 * 1024 * 1024), ("grpc.use_local_subchannel_pool", 1)]
    addresses = [crowd.routers[number % len(crowd.routers)] for number in range(GRPC_CHANNELS)]
    channels = [grpc.aio.insecure_channel(address, options=options) for address in addresses]
    for channel in channels:
        await channel.channel_ready()
    return channels, [router_pb2_grpc.RouterServiceStub(channel) for channel in channels]


async def by_grpc(crowd: Crowd, _: list[Socket]) -> dict[str, float]:
    """A `Resume` call for each generation, on a few HTTP/2 connections. This client works while it measures."""
    channels, stubs = await _routers(crowd)

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


WAYS: Final[dict[str, Callable[[Crowd, list[Socket]], Awaitable[dict[str, float]]]]] = {
    "restore": by_restore,
    "one": by_restore,
    "resume": by_resume,
    "connect": by_connect,
    "grpc": by_grpc,
    "sse": by_sse,
}


async def _until(reached: Callable[[], bool]) -> None:
    """Waits for a condition, for `_LIMIT_S` at the most: a stream that never comes is a figure, not a hanging benchmark."""
    until = now() + _LIMIT_S
    while not reached() and now() < until:
        await asyncio.sleep(0.05)
