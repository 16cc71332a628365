"""docs/protocol.md is true: every example is replayed against a real edge."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import websockets

from streamway.errors import Cancelled, ModelNotFound
from streamway.v1 import common_pb2
from tests.support.clients import Frames
from tests.support.edge_world import EdgeWorld, edge_world
from tests.support.hand_router import refused
from tests.support.inference_service import failed, finished, started, token

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
BLOCKS = re.findall(r"```frames\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def matches(expected: Any, got: Any) -> bool:
    """Equal, where "…" equals anything; an object has exactly the expected fields."""
    if expected == "…":
        return True
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(matches(value, got[name]) for name, value in expected.items())
    return type(expected) is type(got) and expected == got


def play(world: EdgeWorld) -> None:
    """Router and worker behave as the page tells."""

    def answer(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
        if request.model == "no-such-model":
            return [refused(request, ModelNotFound(request.model, ["simulated"]))]
        if "story" in request.messages[0].content:
            world.worker.push(request.generation, started(), token(3, "Once"))
        else:
            merged = token(5, "lo!")
            merged.first_position, merged.token.units = 4, 2
            merged.token.choice_finished.finish_reason = "stop"
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "cached_prompt_tokens": 2}
            world.worker.push(request.generation, started(), token(3, "Hel"), merged, finished(6, **usage))
        return world.router.locate(request)

    world.router.answer = answer


async def obey_cancels(world: EdgeWorld) -> None:
    """The worker ends what the router was told to cancel."""
    await world.router.until(lambda: bool(world.router.cancelled), 60)
    end = failed(4, Cancelled())
    end.error.delivered_until = 3
    world.worker.push(world.router.cancelled[0], end)


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS, ids=[f"example-{number}" for number, _ in enumerate(BLOCKS, 1)])
async def test_an_example_of_the_page_is_what_happens(block: str) -> None:
    async with edge_world() as world, asyncio.TaskGroup() as group:
        play(world)
        worker = group.create_task(obey_cancels(world))
        async with websockets.connect(world.websocket_url) as socket:
            client = Frames(socket)
            lines = block.strip().splitlines()
            if '"hello"' not in lines[0]:
                await client.receive()
            for line in lines:
                direction, text = line[0], line[1:].strip()
                expected = json.loads(text)
                if direction == "→":
                    await client.socket.send(text)
                else:
                    got = await client.receive(5)
                    assert matches(expected, got), f"the page says {expected}, the edge says {got}"
        worker.cancel()
