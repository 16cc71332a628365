"""docs/protocol.md is true: every example is replayed against a real edge and a real store."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import websockets
from redis.asyncio import Redis

from streamway.errors import Cancelled, ModelNotFound
from streamway.v1 import common_pb2
from tests.support.clients import Frames
from tests.support.hand_router import refused
from tests.support.inference_service import failed, token
from tests.support.journaled import Answer, JournaledWorld, journaled_world
from tests.support.valkey_server import ValkeyServer

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
BLOCKS = re.findall(r"```frames\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def matches(expected: Any, got: Any) -> bool:
    """Equal, where "…" equals anything; an object has exactly the expected fields."""
    if expected == "…":
        return True
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(matches(value, got[name]) for name, value in expected.items())
    return type(expected) is type(got) and expected == got


async def play(world: JournaledWorld) -> None:
    """Router and worker behave as the page tells."""

    def answer(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
        if request.model == "no-such-model":
            return [refused(request, ModelNotFound(request.model, ["simulated"]))]
        return world.locate(request)

    world.router.answer = answer
    number = 0
    while True:
        number += 1
        made = Answer(world, await world.router.asked(number, 60))
        if made.request.model == "no-such-model":
            continue
        await made.accept()
        await made.begin()
        if "story" in made.request.messages[0].content:
            await made.say("Once")
            await world.router.until(lambda: bool(world.router.cancelled), 60)
            end = failed(4, Cancelled(), made.epoch)
            end.error.delivered_until = 3
            world.worker.push(made.id, end)
            continue
        await made.say("Hel")
        merged = token(5, "lo!", made.epoch)
        merged.first_position, merged.token.units = 4, 2
        merged.token.choice_finished.finish_reason = "stop"
        await made.put(merged)
        await made.end(prompt_tokens=7, completion_tokens=3, cached_prompt_tokens=2)


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS, ids=[f"example-{number}" for number, _ in enumerate(BLOCKS, 1)])
async def test_an_example_of_the_page_is_what_happens(block: str, valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with journaled_world(valkey, valkey_server.url) as world, asyncio.TaskGroup() as group:
        edge = await world.edge()
        mesh = group.create_task(play(world))
        known: dict[str, str] = {}
        async with websockets.connect(f"ws://{edge.address}/v1/stream") as socket:
            client = Frames(socket)
            lines = block.strip().splitlines()
            if '"hello"' not in lines[0]:
                await client.receive()
            for line in lines:
                direction, text = line[0], line[1:].strip()
                for name, value in known.items():
                    text = text.replace(f"<{name}>", value)
                expected = json.loads(text)
                if direction == "→":
                    await client.socket.send(text)
                else:
                    got = await client.receive(10)
                    assert matches(expected, got), f"the page says {expected}, the edge says {got}"
                    known |= {name: str(got[name]) for name in ("generation", "epoch") if name in got}
        mesh.cancel()
