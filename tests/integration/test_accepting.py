"""Accept on a real Valkey that restarts in the middle: no task without its channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from streamway.journal import Entry, Kind
from streamway.journal.accepting import Accepting
from streamway.lanes import NewTask, TaskCopy, commands_of
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import LinkLost, Session
from tests.support.router_mesh import ask, mesh, until
from tests.support.valkey_server import ValkeyServer

LANE = keys.lane("w0", "gold")


class _CutAfterAccept:
    """A session whose store goes when the channel is open."""

    def __init__(self, session: Session, stop: Callable[[], None]) -> None:
        self._session = session
        self._stop = stop

    @property
    def alive(self) -> bool:
        return self._session.alive

    def send(self, command: Sequence[Any], on_reply: Callable[[Any], None]) -> None:
        self._session.send(command, on_reply)

    async def call(self, *command: Any) -> Any:
        reply = await self._session.call(*command)
        if command[0] in ("EVAL", "EVALSHA"):
            self._stop()
        return reply


async def test_a_store_that_comes_back_empty_gets_channel_record_and_copy(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path)
    link, scope = Link(server.url, SystemClock()), TaskScope("test")
    scope.spawn(link.run(), "link")
    client = Redis.from_url(server.url)
    try:
        request = ask()
        name, copy = request.generation, TaskCopy(request.generation, 1, "ref")
        commands = commands_of(NewTask(request, "w0", copy, 1234))
        accepting = Accepting(name, [Entry(0, 1, 1, Kind.ACCEPTED, b"")], 60_000, keys.generation(name), commands)
        with pytest.raises(LinkLost):
            await accepting(_CutAfterAccept(await link.session(), server.stop))
        server = ValkeyServer(tmp_path)
        async with asyncio.timeout(10):
            assert await accepting(await link.session())
        assert await client.xlen(LANE) == 1
        assert await client.xlen(keys.response(name)) == 1
        assert await client.hget(keys.generation(name), "state") == b"queued"
        assert await client.pttl(keys.generation(name)) > 500_000
    finally:
        await client.aclose()
        await scope.close()
        server.stop()


async def test_no_task_is_without_its_channel_when_the_store_restarts_under_a_burst(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path)
    client = Redis.from_url(server.url)
    try:
        async with mesh(
            client, server.url, queue_limit=10_000, worker_fields={"slots": "10000"}, keep_workers_s=60, poll_s=0.1
        ) as made:
            stream = made.connect()
            asked = []
            for part in range(6):
                requests = [ask(f"{part} {number}") for number in range(100)]
                asked += [request.generation for request in requests]
                opens = [router_pb2.Open(request=each, delivery=router_pb2.DELIVERY_LOCATION) for each in requests]
                await stream.send(*[router_pb2.ConnectCommand(open=each) for each in opens])
                if part == 2:
                    await until(lambda: len(stream.events) > 150, 20)
                    server.stop()
                    server = ValkeyServer(tmp_path)
            await until(lambda: all(stream.of(generation) for generation in asked), 30)
            bare = []
            for _, fields in await client.xrange(LANE):
                name = fields[b"generation"].decode()
                durable = await client.hget(keys.generation(name), "durability") != b"%d" % common_pb2.DURABILITY_OFF
                if durable and not await client.exists(keys.response(name)):
                    bare.append(name)
            assert bare == []
            durable = {
                event.generation
                for event in stream.events
                if event.HasField("accepted") and event.accepted.durability == common_pb2.DURABILITY_RELAXED
            }
            assert len(durable) > 100
            await stream.close()
    finally:
        await client.aclose()
        server.stop()
