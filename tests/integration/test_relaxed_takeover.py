"""A worker that delivered more than the store has, and dies: its reader writes the rest, and the takeover starts behind that."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from streamway.attach import AttachPool
from streamway.config import SharedSettings
from streamway.errors import StreamwayError
from streamway.following import GenerationReader, Located, Place, ReaderPorts
from streamway.journal import Cursor
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey.link import Link
from tests.support.adapter_world import assert_tile, channel_of, enqueue, eventually, kinds, request, text
from tests.support.ports import free_port
from tests.support.proxy import proxy_to
from tests.support.scripted_engine import ScriptedEngine
from tests.support.two_workers import RELAXED, copy_for, ended, events_in, kill, router_lease, worker
from tests.support.valkey_server import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient")


class _Sink:
    """A ReaderSink that keeps what it got."""

    def __init__(self) -> None:
        self.events: list[common_pb2.Event] = []
        self.error: StreamwayError | None = None

    def event(self, event: common_pb2.Event, kind: str) -> None:
        copy = common_pb2.Event()
        copy.CopyFrom(event)
        self.events.append(copy)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self.error = error


class _Edge:
    """Reads the store and the workers. `found` is what its router knows of the generation."""

    def __init__(self, url: str) -> None:
        self.found = Located(None)
        self.asked = 0
        self.scope = TaskScope("edge")
        self.link = Link(url, SystemClock())
        self.pool = AttachPool(SharedSettings(valkey_url=url), self.scope, reattach_s=0.2)
        self.scope.spawn(self.link.run(), "link")
        self.ports = ReaderPorts(self.pool, self.link, self.locate, self.scope, takeover_wait_s=20)

    async def locate(self, generation: str, tenant: str, **_: Any) -> Located:
        self.asked += 1
        return self.found

    async def close(self) -> None:
        await self.pool.close()
        await self.scope.close()


@pytest.fixture
def tcp_server(tmp_path: Path) -> Iterator[tuple[ValkeyServer, int]]:
    """A server that a network lies before."""
    port = free_port()
    server = ValkeyServer(tmp_path, "--port", str(port))
    yield server, port
    server.stop()


@contextlib.asynccontextmanager
async def edge_at(url: str) -> AsyncIterator[_Edge]:
    edge = _Edge(url)
    try:
        yield edge
    finally:
        await edge.close()


async def test_a_takeover_starts_behind_what_readers_were_given_without_the_store(
    tcp_server: tuple[ValkeyServer, int],
) -> None:
    server, port = tcp_server
    valkey = Redis.from_url(server.url)
    await router_lease(valkey, SystemClock())
    engine, other = ScriptedEngine(), ScriptedEngine()
    async with (
        proxy_to(f"http://127.0.0.1:{port}") as network,
        worker(network.url.replace("http:", "redis:"), "a", engine) as first,
        worker(server.url, "b", other) as second,
        edge_at(server.url) as edge,
    ):
        generation = await enqueue(valkey, request(model="scripted", durability=RELAXED), worker="a")
        sink = _Sink()
        reader = GenerationReader(edge.ports, generation, "anonymous", sink, cursor=Cursor(0, 1))
        reader.attach(Place("a", first.address))
        call = await engine.next_call()
        call.say("one ")
        await eventually(lambda: text(sink.events), "one ")
        network.weather = "blackhole"
        for word in ("two ", "three "):
            call.say(word)
            await eventually(lambda: text(sink.events), {"two ": "one two ", "three ": "one two three "}[word])
        assert [event.not_durable for event in sink.events] == [False, False, True, True]
        assert text(events_in(await channel_of(valkey, generation))) == "one "
        await kill(first, valkey, "a")
        network.cut()
        # A router moves the task only after it was asked where the generation is now.
        await eventually(lambda: edge.asked > 0, True, 10)
        assert text(events_in(await channel_of(valkey, generation))) == "one two three "
        await copy_for(valkey, generation, "b")
        taken_over = await other.next_call()
        edge.found = Located(Place("b", second.address), epoch=2 << 20, worker="b")
        assert taken_over.so_far is not None
        assert taken_over.so_far.text == "one two three "
        taken_over.say("four")
        taken_over.end()
        await eventually(lambda: reader.ended, True, 10)
        assert sink.error is None
        assert "diverged" not in kinds(sink.events)
        assert text(sink.events) == "one two three four"
        assert_tile(sink.events)
        entries = await channel_of(valkey, generation)
        assert ended(entries)
        assert_tile(events_in(entries), first=1)
        assert text(events_in(entries)) == "one two three four"
    await valkey.aclose()
