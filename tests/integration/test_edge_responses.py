"""The Responses API of real edges on a real store, with a router and a worker by hand: what is kept, by whom, how long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from services.edge.app import Edge
from services.edge.core import responses_request
from services.edge.core.responses_state import Outcome
from services.edge.io.responses_store import ResponseStore
from streamway.errors import EngineFailed, ModelNotFound
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from tests.support.clients import RawRequest
from tests.support.hand_router import accepted, refused
from tests.support.inference_service import failed
from tests.support.journaled import RELAXED, Answer, JournaledWorld, journaled_world
from tests.support.ports import free_port
from tests.support.valkey_server import ValkeyServer


@pytest.fixture
async def world(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[JournaledWorld]:
    async with journaled_world(valkey, valkey_server.url) as made:
        yield made


def url(edge: Edge, id_: str = "") -> str:
    return f"http://{edge.address}/v1/responses" + (f"/{id_}" if id_ else "")


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "simulated", "input": "hi", **fields}


async def call(method: str, where: str, **options: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, where, **options) as response:
        return response.status, json.loads(await response.read())


async def events_of(where: str, method: str = "GET", **options: Any) -> list[dict[str, Any]]:
    """A stream to its end."""
    async with aiohttp.ClientSession() as session, session.request(method, where, **options) as response:
        text = await response.text()
        assert response.status == 200, text
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]


def delta(events: list[dict[str, Any]]) -> str:
    return "".join(event.get("delta", "") for event in events)


async def background(world: JournaledWorld, edge: Edge, number: int = 1) -> tuple[str, Answer]:
    """A background response whose worker has begun."""
    status, response = await call("POST", url(edge), json=body(background=True))
    assert (status, response["status"]) == (200, "queued")
    return response["id"], await world.answer(number)


def readers(world: JournaledWorld, answer: Answer) -> int:
    """Live subscriptions of a generation."""
    streams = world.worker._readers
    return sum(each.generation == answer.id for stream in streams for each in stream.subscriptions.values())


async def until(true: Any, within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)


async def completed(edge: Edge, id_: str) -> Any:
    """A response, when the edge has read its end."""
    async with asyncio.timeout(20):
        while (response := (await call("GET", url(edge, id_)))[1])["status"] != "completed":
            await asyncio.sleep(0.02)
    return response


async def test_the_edges_that_were_asked_read_a_background_response_to_its_end(world: JournaledWorld) -> None:
    first, second = await world.edge(), await world.edge()
    id_, answer = await background(world, first)
    await answer.say("one ", "two ")
    await until(lambda: readers(world, answer) == 1)
    status, response = await call("GET", url(second, id_))
    assert (status, response["status"]) == (200, "in_progress")
    assert response["output"][0]["content"][0]["text"] == "one two "
    await until(lambda: readers(world, answer) == 2)
    await first.close()
    world.edges.remove(first)
    await until(lambda: readers(world, answer) == 1)
    await answer.say("three")
    await answer.end()
    response = await completed(second, id_)
    assert response["output"][0]["content"][0]["text"] == "one two three"
    assert answer.id not in world.router.cancelled


async def test_a_background_response_that_lost_its_edge_is_kept_by_another_that_nobody_asked(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.edge.io.responses_background._EVERY_S", 0.2)
    monkeypatch.setattr("services.edge.io.responses_background.CLAIM_S", 0.6)
    monkeypatch.setattr("services.edge.io.responses_store.CLAIM_S", 0.6)
    first = await world.edge()
    id_, answer = await background(world, first)
    assert answer.request.on_disconnect == common_pb2.ON_DISCONNECT_CONTINUE
    await answer.say("one ", "two ")
    await until(lambda: readers(world, answer) == 1)
    await first.close()
    world.edges.remove(first)
    await until(lambda: readers(world, answer) == 0)
    # No edge is there, and it goes on.
    await answer.say("three")
    second = await world.edge(resume_grace_s=1)
    await until(lambda: readers(world, answer) == 1, 10)
    await answer.say(" four")
    await answer.end()
    async with asyncio.timeout(10):
        while not await world.valkey.hexists(keys.openai_response(answer.id), "outcome"):
            await asyncio.sleep(0.02)
        while await world.valkey.zcard(keys.openai_background()):
            await asyncio.sleep(0.02)
    await world.valkey.delete(keys.response(answer.id), keys.generation(answer.id))
    _, response = await call("GET", url(second, id_))
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["text"] == "one two three four"


async def test_an_edge_claims_what_it_reads_and_two_edges_do_not_both_read_it(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.edge.io.responses_background._EVERY_S", 0.1)
    monkeypatch.setattr("services.edge.io.responses_background.CLAIM_S", 3.0)
    monkeypatch.setattr("services.edge.io.responses_store.CLAIM_S", 3.0)
    first, _ = await world.edge(), await world.edge()
    _, answer = await background(world, first)
    began = await world.valkey.zscore(keys.openai_background(), answer.id)
    assert began is not None
    async with asyncio.timeout(10):
        while (await world.valkey.zscore(keys.openai_background(), answer.id) or 0) < began + 1000:
            await asyncio.sleep(0.05)
    assert readers(world, answer) == 1
    await answer.end()


async def test_what_can_never_be_read_again_is_claimed_by_nobody(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.edge.io.responses_background._EVERY_S", 0.1)
    index = keys.openai_background()
    gone, unkept = "0197aaaa-0000-7000-8000-000000000001", "0197aaaa-0000-7000-8000-000000000002"
    echo = json.dumps({"model": "simulated", "background": True})
    fields = {"tenant": "anonymous", "session": "", "echo": echo, "messages": "[]"}
    await world.valkey.hset(keys.openai_response(gone), mapping=fields)
    await world.valkey.zadd(index, {gone: 1, unkept: 1})
    await world.edge()
    async with asyncio.timeout(10):
        while await world.valkey.zcard(index):
            await asyncio.sleep(0.02)


async def test_a_response_outlives_its_channel(world: JournaledWorld) -> None:
    edge, other = await world.edge(), await world.edge()
    id_, answer = await background(world, edge)
    await answer.say("one ", "two")
    whole_stream = asyncio.create_task(events_of(url(edge, id_), params={"stream": "true"}))
    await answer.end()
    before = await whole_stream
    _, kept = await call("GET", url(edge, id_))
    await world.valkey.delete(keys.response(answer.id), keys.generation(answer.id))
    del world.router.known[answer.id]
    world.worker.events.clear()
    assert await call("GET", url(other, id_)) == (200, kept)
    again = await events_of(url(other, id_), params={"stream": "true"})
    assert delta(again) == delta(before) == "one two"
    assert again[-1] == before[-1]
    assert [event["sequence_number"] for event in again] == sorted({event["sequence_number"] for event in again})
    end = await events_of(url(other, id_), params={"stream": "true", "starting_after": before[-3]["sequence_number"]})
    assert end == before[-2:]
    inside = before[4]["sequence_number"]
    status, problem = await call("GET", url(other, id_), params={"stream": "true", "starting_after": inside})
    assert problem["error"]["code"] == "events_expired", "a part of a text cannot be cut out of the whole"
    assert status >= 400


async def test_a_stream_goes_on_after_each_number_at_another_edge_while_it_is_made(world: JournaledWorld) -> None:
    first, second = await world.edge(), await world.edge()
    request = await RawRequest.post(url(first), body(background=True, stream=True))
    answer = await world.answer()
    await answer.say("a", "b")
    assert await request.head() == 200
    seen: list[dict[str, Any]] = []
    async for data in request.events():
        seen.append(json.loads(data))
        if delta(seen) == "ab":
            break
    request.cut()
    resumed = asyncio.create_task(
        events_of(
            url(second, seen[0]["response"]["id"]),
            params={"stream": "true", "starting_after": seen[-1]["sequence_number"]},
        )
    )
    await world.router.until(lambda: bool(world.router.located))
    await answer.say("c")
    await answer.end()
    seen += await resumed
    assert delta(seen) == "abc"
    assert [event["type"] for event in seen[-1:]] == ["response.completed"]
    assert answer.id not in world.router.cancelled


async def test_a_client_that_leaves_cancels_what_is_not_in_the_background(world: JournaledWorld) -> None:
    edge = await world.edge()
    request = await RawRequest.post(url(edge), body(stream=True))
    answer = await world.answer()
    await answer.say("a")
    assert await request.head() == 200
    request.cut()
    await world.router.until(lambda: answer.id in world.router.cancelled or answer.id in world.worker.cancelled)


async def test_a_refusal_is_a_status_and_leaves_nothing(world: JournaledWorld) -> None:
    edge = await world.edge()
    world.router.answer = lambda request: [refused(request, ModelNotFound("simulated", []))]
    for fields in ({}, {"stream": True}, {"background": True}, {"background": True, "stream": True}):
        status, problem = await call("POST", url(edge), json=body(**fields))
        assert (status, problem["error"]["code"]) == (404, "model_not_found")
    assert await world.valkey.keys("sw:openai:*") == []


async def test_a_failure_in_mid_answer_is_told_in_the_stream_and_kept(world: JournaledWorld) -> None:
    edge = await world.edge()
    stream = asyncio.create_task(events_of(url(edge), "POST", json=body(stream=True)))
    answer = await world.answer()
    await answer.say("a")
    answer.world.worker.push(answer.id, failed(answer.position + 1, EngineFailed("hand", "it broke"), answer.epoch))
    events = await stream
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["type"] == "engine_failed"
    _, kept = await call("GET", url(edge, events[0]["response"]["id"]))
    assert kept == events[-1]["response"]


async def test_an_idempotency_key_leads_to_the_earlier_response(world: JournaledWorld) -> None:
    edge = await world.edge()
    id_, answer = await background(world, edge)
    await answer.say("only once")

    def attach(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
        return [accepted(request, "hand", world.source, durability=RELAXED, attached_to=answer.id)]

    world.router.answer = attach
    status, again = await call("POST", url(edge), json=body(background=True), headers={"Idempotency-Key": "k"})
    assert (status, again["id"]) == (200, id_)
    assert len(await world.valkey.keys("sw:openai:*")) == 1
    await answer.end()


async def test_without_a_store_an_answer_is_not_stored_and_a_background_one_refused(
    world: JournaledWorld,
) -> None:
    edge = await world.edge(shared={"valkey_url": SecretStr(f"redis://127.0.0.1:{free_port()}/0")})
    status, problem = await call("POST", url(edge), json=body(background=True))
    assert (status, problem["error"]["code"]) == (503, "store_unavailable")
    asked = asyncio.create_task(call("POST", url(edge), json=body()))
    answer = await world.answer()
    await answer.say("a")
    await answer.end()
    status, response = await asked
    assert (status, response["status"], response["store"]) == (200, "completed", False)


async def test_what_is_deleted_while_its_end_is_kept_stays_deleted(valkey: Redis, valkey_server: ValkeyServer) -> None:
    """Two edges, each on a connection of its own: one keeps the outcome, the other erases."""
    links = [Link(valkey_server.url, SystemClock()) for _ in range(2)]
    scope = TaskScope("test")
    try:
        for link in links:
            scope.spawn(link.run(), "link")
        keeper, eraser = (ResponseStore(link, 60.0, SystemClock()) for link in links)
        echo = responses_request.echo(responses_request.parse(b'{"model":"m","input":"hi"}'))
        for number in range(300):
            await keeper.begin(str(number), "t", "s", echo, [])
            async with asyncio.TaskGroup() as group:
                group.create_task(keeper.end(str(number), Outcome("completed", "said")))
                group.create_task(eraser.erase(str(number)))
        assert await valkey.keys("sw:openai:*") == []
    finally:
        await scope.close()


async def test_deleting_takes_request_and_events_with_it(world: JournaledWorld) -> None:
    edge = await world.edge()
    id_, answer = await background(world, edge)
    await answer.say("a")
    await answer.end()
    status, told = await call("DELETE", url(edge, id_))
    assert (status, told) == (200, {"id": id_, "object": "response", "deleted": True})
    for key in (keys.openai_response, keys.response, keys.generation):
        assert not await world.valkey.exists(key(answer.id))
    assert (await call("GET", url(edge, id_)))[0] == 404
