"""B1: usage arrives once, with or after the finish reason, for every way an answer ends, on every surface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from services.edge.app import Edge
from streamway.v1 import common_pb2
from tests.support.clients import RawRequest, chat_body, frames
from tests.support.journaled import Answer, JournaledWorld, journaled_world
from tests.support.valkey_server import ValkeyServer

USAGE = {"prompt_tokens": 11, "completion_tokens": 7}
TOOL = b'{"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}}'
# How it ends → what the engine said before: the text of each choice.
ENDS = {"stop": ["yes"], "length": ["cut"], "tool_calls": [""], "empty": [""], "two": ["a", "b"]}


@pytest.fixture
async def world(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[JournaledWorld]:
    async with journaled_world(valkey, valkey_server.url) as made:
        yield made


async def make(answer: Answer, end: str) -> None:
    """The answer, choice by choice, and its end."""
    reason = {"empty": "stop", "two": "stop"}.get(end, end)
    for choice, text in enumerate(ENDS[end]):
        said = common_pb2.Token(text=text, units=1, choice=choice)
        if end == "tool_calls":
            said.raw_delta = TOOL
        said.choice_finished.finish_reason = reason
        await answer.put(common_pb2.Event(position=answer.position + 1, epoch=answer.epoch, token=said))
    await answer.end(**USAGE)


async def chunks(request: RawRequest) -> list[dict[str, Any]]:
    assert await request.head() == 200
    return [json.loads(event) async for event in request.events() if event != "[DONE]"]


@pytest.mark.parametrize("end", ENDS)
async def test_b1_a_completion_has_usage_once_after_its_finish_reasons(world: JournaledWorld, end: str) -> None:
    edge = await world.edge()
    body = chat_body("x", stream=True, stream_options={"include_usage": True}, n=len(ENDS[end]))
    reading = asyncio.ensure_future(chunks(await RawRequest.post(f"http://{edge.address}/v1/chat/completions", body)))
    await make(await world.answer(), end)
    seen = await reading
    at = [number for number, chunk in enumerate(seen) if chunk.get("usage")]
    assert at == [len(seen) - 1]
    assert {name: seen[-1]["usage"][name] for name in USAGE} == USAGE
    reasons = [choice["finish_reason"] for chunk in seen for choice in chunk["choices"] if choice["finish_reason"]]
    assert reasons == [{"empty": "stop", "two": "stop"}.get(end, end)] * len(ENDS[end])


@pytest.mark.parametrize("end", ENDS)
async def test_b1_frames_have_usage_once_in_finished_and_so_has_a_reader_that_comes_later(
    world: JournaledWorld, end: str
) -> None:
    edge = await world.edge()
    async with frames(f"ws://{edge.address}/v1/stream") as client:
        await client.open("a", "x", params={"n": len(ENDS[end])})
        answer = await world.answer()
        await make(answer, end)
        live = await client.until("finished", "a")
        # After every position there is, also the last, the end comes once more.
        for position in range(1, answer.position):
            await client.send(type="resume", id=f"r{position}", generation=answer.id, after=at(answer, position))
            later = await client.until("finished", f"r{position}")
            assert told(later) == told(live)
    assert told(live) == [USAGE]
    assert [frame["type"] for frame in live].index("finished") == len(live) - 1
    assert await polled(edge, answer) == [USAGE]


def at(answer: Answer, position: int) -> str:
    return f"{answer.line.owner(position)}-{position}"


def told(seen: list[dict[str, Any]]) -> list[dict[str, int]]:
    """Every usage in frames, as far as it is compared."""
    return [{name: frame["usage"][name] for name in USAGE} for frame in seen if "usage" in frame]


async def polled(edge: Edge, answer: Answer) -> list[dict[str, int]]:
    request = await RawRequest.get(f"http://{edge.address}/v1/generations/{answer.id}/events?after=0-0")
    assert await request.head() == 200
    return told(json.loads(await request.body())["events"])
