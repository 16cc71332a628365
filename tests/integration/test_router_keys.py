"""Idempotency keys while the store is away: one router's memory, told as `off`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from streamway.errors import from_status
from streamway.v1 import common_pb2
from tests.support.inference_service import HandWorker, finished, started, token
from tests.support.router_mesh import Mesh, ask, mesh, until
from tests.support.valkey_server import ValkeyServer


class _Store:
    """A mesh whose store is stopped and started."""

    def __init__(self, made: Mesh, server: ValkeyServer, folder: Path) -> None:
        self.made = made
        self.server = server
        self._folder = folder

    @property
    def hand(self) -> HandWorker:
        return self.made.workers[0].hand

    @property
    def inline(self) -> list[str]:
        return [
            command.inline_task.request.generation for command in self.hand.commands if command.HasField("inline_task")
        ]

    async def back(self) -> None:
        self.server = ValkeyServer(self._folder)
        stream = self.made.connect()
        async with asyncio.timeout(20):
            while True:
                await self.made.renew()
                told = await stream.first(await stream.open(ask("is it back?")))
                if told.accepted.durability == common_pb2.DURABILITY_RELAXED:
                    break
        await stream.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[_Store]:
    async with _running(tmp_path) as made:
        yield made


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[_Store]:
    server = ValkeyServer(folder)
    client = Redis.from_url(server.url)
    world: _Store | None = None
    try:
        async with mesh(client, server.url, dispatch_timeout_s=0.5, poll_s=0.1) as made:
            world = _Store(made, server, folder)
            yield world
    finally:
        await client.aclose()
        (world.server if world is not None else server).stop()


async def test_a_key_begins_an_answer_that_is_told_as_off_and_a_retry_attaches_running_and_ended(store: _Store) -> None:
    stream = store.made.connect()
    store.server.stop()
    one = await stream.open(ask("pay", idempotency_key="k"), location=False)
    told = (await stream.first(one)).accepted
    assert (told.worker, told.durability, told.attached_to) == ("w0", common_pb2.DURABILITY_OFF, "")
    two = await stream.open(ask("pay", idempotency_key="k"), location=False)
    told = (await stream.first(two)).accepted
    assert (told.attached_to, told.durability, told.worker) == (one, common_pb2.DURABILITY_OFF, "w0")
    await until(lambda: store.inline == [one])
    store.hand.push(one, started(2), token(3, "x"), finished(4))
    for generation in (one, two):
        await until(lambda generation=generation: stream.kinds(generation)[-1] == "finished")
    three = await stream.open(ask("pay", idempotency_key="k"), location=False)
    await until(lambda: stream.kinds(three) == ["accepted", "started", "token", "finished"])
    assert store.inline == [one]
    await stream.close()


async def test_many_at_once_begin_one(store: _Store) -> None:
    stream = store.made.connect()
    store.server.stop()
    opened = [await stream.open(ask("pay", idempotency_key="k")) for _ in range(10)]
    told = [(await stream.first(generation)).accepted for generation in opened]
    begun = {event.attached_to or generation for event, generation in zip(told, opened, strict=True)}
    assert len(begun) == 1
    await until(lambda: store.inline == list(begun))
    await stream.close()


async def test_another_request_under_the_key_is_a_conflict_and_a_refused_one_leaves_it_free(store: _Store) -> None:
    stream = store.made.connect()
    store.server.stop()
    refused = await stream.first(await stream.open(ask("pay", model="gpt-9", idempotency_key="k")))
    assert from_status(refused.error.status).name == "model_not_found"
    one = await stream.open(ask("pay", idempotency_key="k"))
    assert (await stream.first(one)).accepted.attached_to == ""
    conflict = from_status((await stream.first(await stream.open(ask("pay more", idempotency_key="k")))).error.status)
    assert conflict.name == "idempotency_conflict"
    assert one in conflict.message
    await stream.close()


async def test_what_was_begun_before_the_store_went_is_attached_to(store: _Store) -> None:
    stream = store.made.connect()
    one = await stream.open(ask("pay", idempotency_key="k"))
    assert (await stream.first(one)).accepted.durability == common_pb2.DURABILITY_RELAXED
    store.server.stop()
    two = await stream.open(ask("pay", idempotency_key="k"))
    told = (await stream.first(two)).accepted
    assert (told.attached_to, told.worker) == (one, "w0")
    assert store.inline == []
    await stream.close()


async def test_what_was_begun_without_the_store_is_attached_to_when_it_is_back(store: _Store) -> None:
    stream = store.made.connect()
    store.server.stop()
    one = await stream.open(ask("pay", idempotency_key="k"))
    assert (await stream.first(one)).accepted.durability == common_pb2.DURABILITY_OFF
    await store.back()
    two = await stream.open(ask("pay", idempotency_key="k"))
    assert (await stream.first(two)).accepted.attached_to == one
    new = await stream.open(ask("pay", idempotency_key="another"))
    told = (await stream.first(new)).accepted
    assert (told.attached_to, told.durability) == ("", common_pb2.DURABILITY_RELAXED)
    await stream.close()
