"""More requests than an edge is made for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from streamway.errors import QueueFull
from streamway.v1 import common_pb2
from tests.support.clients import frames
from tests.support.edge_world import EdgeWorld
from tests.support.hand_router import refused

CROWDED = {"pressure_requests_per_s": 0.5, "pressure_overload_s": 1}


async def level(world: EdgeWorld, name: str, value: int, within_s: float = 60.0) -> None:
    """Waits until a level of pressure holds, or holds no more."""
    async with asyncio.timeout(within_s):
        while await world.metric("streamway_edge_pressure", level=name) != value:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def again_and_again(do: Callable[[int], Awaitable[None]]) -> AsyncIterator[None]:
    """Does something in the background until the block ends. It is not cancelled: `wait_for` may lose that."""
    over = asyncio.Event()

    async def work() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            await do(number)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        try:
            yield
        finally:
            over.set()


@asynccontextmanager
async def flood(world: EdgeWorld) -> AsyncIterator[None]:
    """Far more requests than this edge is made for, on a connection of their own; the router refuses them."""
    locate = world.router.answer

    def answer(request: common_pb2.GenerationRequest) -> list[common_pb2.Event] | None:
        flooding = request.messages[0].content == "flood"
        return [refused(request, QueueFull("m", 1))] if flooding else locate(request)

    async def ask(number: int) -> None:
        await client.open(f"{number}", "flood")
        await client.until("error", f"{number}")
        await asyncio.sleep(0.02)

    world.router.answer = answer
    async with frames(world.websocket_url) as client, again_and_again(ask):
        yield
