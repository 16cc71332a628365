"""A client whose generation follows an identical one: it has its own id, its own cancel, and is asked again if that one fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import websockets
from redis.asyncio import Redis

from services.edge.app import Edge
from streamway.errors import EngineFailed, to_status
from streamway.v1 import common_pb2
from tests.support.clients import Frames, text_of
from tests.support.hand_router import accepted
from tests.support.journaled import RELAXED, Answer, JournaledWorld, journaled_world
from tests.support.valkey_server import ValkeyServer


@pytest.fixture
async def world(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[JournaledWorld]:
    async with journaled_world(valkey, valkey_server.url) as made:
        yield made


async def _connected(edge: Edge) -> Frames:
    client = Frames(await websockets.connect(f"ws://{edge.address}/v1/stream"))
    await client.receive()
    return client


async def _led_and_followed(world: JournaledWorld, client: Frames) -> Answer:
    """A generation "a" that runs, and "b" that follows it."""
    world.router.answer = lambda request: [accepted(request, "hand", world.source, durability=RELAXED, shared=True)]
    await client.open("a", "hi")
    answer = await world.answer()
    world.router.answer = lambda request: [
        accepted(request, "hand", world.source, durability=RELAXED, shared=True, follows=answer.id)
    ]
    await client.open("b", "hi")
    told = (await client.until("accepted", "b"))[-1]
    assert (told["follows"], told["generation"]) == (answer.id, world.router.opened[1].generation)
    async with asyncio.timeout(10):
        while len(world.worker.subscribed) < 2:
            await asyncio.sleep(0.01)
    return answer


async def test_a_follower_reads_its_leader_and_each_ends_for_itself_by_its_own_cancel(world: JournaledWorld) -> None:
    edge = await world.edge()
    client = await _connected(edge)
    answer = await _led_and_followed(world, client)
    await answer.say("one ")
    await client.until("token", "b")
    await client.send(type="cancel", id="a")
    ended = (await client.until("error", "a"))[-1]
    assert ended["reason"] == "cancelled"
    await answer.say("two")
    await client.until("token", "b")
    await client.send(type="cancel", id="b")
    assert (await client.until("error", "b"))[-1]["reason"] == "cancelled"
    led, follower = [request.generation for request in world.router.opened]
    await world.router.until(lambda: world.router.cancelled == [led, follower])
    assert world.worker.cancelled == [], "what a cancel comes to is the router's to say"
    await client.socket.close()


async def test_a_leader_that_fails_before_its_first_token_lets_the_follower_start_for_itself(
    world: JournaledWorld,
) -> None:
    edge = await world.edge()
    client = await _connected(edge)
    answer = await _led_and_followed(world, client)
    world.router.answer = world.locate
    problem = common_pb2.Error(status=to_status(EngineFailed("hand", "it broke")))
    world.worker.push(answer.id, common_pb2.Event(epoch=answer.epoch, position=3, error=problem))
    assert (await client.until("error", "a"))[-1]["reason"] == "engine_failed"
    own = await world.answer(3)
    assert own.id == world.router.opened[1].generation, "asked again under its own id"
    assert world.router.failed_leaders == ["", "", answer.id]
    await own.say("mine")
    await own.end()
    seen = await client.until("finished", "b")
    assert [frame["type"] for frame in seen if frame.get("id") == "b"] == ["started", "token", "finished"]
    assert text_of(seen, "b") == "mine"
    await client.socket.close()


async def test_a_leader_that_fails_after_a_token_fails_for_its_follower_too(world: JournaledWorld) -> None:
    edge = await world.edge()
    client = await _connected(edge)
    answer = await _led_and_followed(world, client)
    await answer.say("one")
    await client.until("token", "b")
    problem = common_pb2.Error(status=to_status(EngineFailed("hand", "it broke")))
    world.worker.push(answer.id, common_pb2.Event(epoch=answer.epoch, position=4, error=problem))
    assert (await client.until("error", "b"))[-1]["reason"] == "engine_failed"
    assert len(world.router.opened) == 2
    await client.socket.close()
