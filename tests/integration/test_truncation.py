"""Answers that run while memory is short are cut, and every surface says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.io.floor_watch import FloorWatch
from streamway.journal import Kind
from streamway.memory import Floor, Memory
from streamway.v1 import common_pb2
from tests.support.adapter_world import (
    assert_tile,
    attached,
    channel_of,
    enqueue,
    eventually,
    kinds,
    request,
    state_of,
    text,
)
from tests.support.clients import frames
from tests.support.edge_world import EdgeWorld, chat, edge_world, sse
from tests.support.inference_service import finished, started, token
from tests.support.scripted_engine import ScriptedEngine
from tests.support.two_workers import RELAXED, worker
from tests.support.valkey_server import ValkeyServer

OFF = common_pb2.DURABILITY_OFF
GB = 10**9


def memory_of(adapter: Adapter, free_bytes: int) -> None:
    """From now on the adapter's machine has 16 GB, so many of them available."""
    watch = FloorWatch(Floor(1_200_000_000, 0.15), lambda: [Memory(16 * GB - free_bytes, 16 * GB)])
    adapter._worker._memory_short = watch.short


@pytest.mark.parametrize("durability", [RELAXED, OFF], ids=["relaxed", "off"])
async def test_an_answer_that_runs_while_memory_is_short_is_cut_with_what_there_is(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    engine = ScriptedEngine()
    async with worker(valkey_server.url, "a", engine) as adapter, attached(adapter) as stream:
        memory_of(adapter, 4 * GB)
        running = await enqueue(valkey, request("one", durability=durability), worker="a")
        number = await stream.subscribe(running, after=1)
        call = await engine.next_call()
        call.say("one ", "two ")
        waiting = await enqueue(valkey, request("two", durability=durability), worker="a")
        silent = await engine.next_call(2)
        await stream.until(number, 2)
        memory_of(adapter, GB)
        events = await stream.all(number)
        assert call.aborted
        assert text(events) == "one two "
        assert_tile(events)
        ended = events[-1].finished
        assert (ended.finish_reason, ended.truncated) == ("length", "memory")
        assert (ended.usage.completion_tokens, ended.usage.estimated) == (2, True)
        last = next(event for event in reversed(events) if event.HasField("token"))
        assert last.token.choice_finished.truncated == "memory"
        await eventually(lambda: state_of(valkey, running), "finished")
        if durability == RELAXED:
            assert (await channel_of(valkey, running))[-1].kind is Kind.END
        # One that has said nothing yet is not made empty.
        assert not silent.aborted
        memory_of(adapter, 4 * GB)
        silent.say("whole")
        silent.end()
        events = await stream.all(await stream.subscribe(waiting, after=1))
        assert (events[-1].finished.finish_reason, events[-1].finished.truncated) == ("stop", "")


async def test_of_several_choices_those_that_have_ended_stay_whole(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with worker(valkey_server.url, "a", engine) as adapter, attached(adapter) as stream:
        memory_of(adapter, 4 * GB)
        wanted = request()
        wanted.sampling.n = 3
        number = await stream.subscribe(await enqueue(valkey, wanted, worker="a"), after=1)
        call = await engine.next_call()
        call.sink.started()
        call.sink.piece(0, "whole", finish_reason="stop")
        call.sink.piece(1, "half")
        memory_of(adapter, GB)
        events = await stream.all(number)
        ends = {
            event.token.choice: (event.token.choice_finished.finish_reason, event.token.choice_finished.truncated)
            for event in events
            if event.HasField("token") and event.token.HasField("choice_finished")
        }
        assert ends == {0: ("stop", ""), 1: ("length", "memory"), 2: ("length", "memory")}
        assert (events[-1].finished.finish_reason, events[-1].finished.truncated) == ("stop", "memory")
        assert_tile(events)
        assert kinds(events)[-1] == "finished"


def _cut(world: EdgeWorld) -> Callable[[], Any]:
    """Has the worker say half an answer that is then cut."""

    async def work() -> None:
        wanted = await world.router.asked(len(world.router.opened) + 1)
        last = token(3, "half")
        last.token.choice_finished.CopyFrom(common_pb2.ChoiceFinished(finish_reason="length", truncated="memory"))
        end = finished(4, prompt_tokens=1, completion_tokens=1)
        end.finished.finish_reason, end.finished.truncated = "length", "memory"
        world.worker.push(wanted.generation, started(), last, end)

    return work


async def test_every_surface_says_that_an_answer_was_cut() -> None:
    async with edge_world() as world, aiohttp.ClientSession() as session:

        async def post(path: str, body: dict[str, Any]) -> tuple[aiohttp.ClientResponse, str]:
            async with asyncio.TaskGroup() as group:
                group.create_task(_cut(world)())
                async with session.post(world.url + path, json=body) as response:
                    return response, await response.text()

        whole, body = await post("/v1/chat/completions", chat())
        assert (whole.status, whole.headers["x-streamway-truncated"]) == (206, "memory")
        assert '"streamway":{"truncated":"memory"}' in body
        assert '"finish_reason":"length"' in body

        _, body = await post("/v1/chat/completions", chat(stream=True))
        marked = [event for event in sse(body) if event != "[DONE]" and "streamway" in event]
        assert [event["streamway"] for event in marked] == [{"truncated": "memory"}]
        assert marked[0]["choices"][0]["finish_reason"] == "length"

        response, body = await post("/v1/responses", {"model": "simulated", "input": "hello", "store": False})
        assert (response.status, response.headers["x-streamway-truncated"]) == (206, "memory")
        assert '"status":"incomplete"' in body
        assert '"streamway":{"truncated":"memory"}' in body

        async with frames(world.url.replace("http", "ws", 1) + "/v1/stream") as client, asyncio.TaskGroup() as group:
            group.create_task(_cut(world)())
            await client.open("a", "hello")
            seen = await client.until("finished")
        assert (seen[-1]["finish_reason"], seen[-1]["truncated"]) == ("length", "memory")
