"""How an edge shares the memory for streams: caps that follow how many there are, and requests that find no room."""

from __future__ import annotations

import asyncio

from tests.support.clients import frames
from tests.support.edge_world import EdgeWorld, edge_world
from tests.support.inference_service import finished, started, token

MIB = 1024**2


async def becomes(world: EdgeWorld, name: str, value: float) -> None:
    async with asyncio.timeout(60):
        while await world.metric(name) != value:
            await asyncio.sleep(0.05)


async def test_a_streams_cap_follows_how_many_there_are_up_and_down() -> None:
    settings = {"stream_memory_bytes": 16 * MIB, "buffer_share": (0.25, 0, 0.5), "review_s": 0.2}
    async with edge_world(**settings) as world, frames(world.websocket_url) as client:
        await becomes(world, "streamway_edge_stream_buffer_bytes", 256 * 1024)
        for number in range(64):
            await client.open(str(number), "hi")
        await world.router.asked(64)
        await becomes(world, "streamway_edge_stream_buffer_bytes", 4 * MIB // 64)
        for request in world.router.opened:
            world.worker.push(request.generation, started(), token(3, "x"), finished(4))
        for _ in range(64):
            await client.until("finished")
        await becomes(world, "streamway_edge_stream_buffer_bytes", 256 * 1024)
        assert await world.metric("streamway_edge_output_share_ratio") == 0.25


async def test_requests_that_no_router_has_fill_their_part_and_no_more() -> None:
    async with edge_world(stream_memory_bytes=16 * MIB, router_answer_s=60) as world:
        world.router.answer = lambda _: None
        async with frames(world.websocket_url) as client:
            for number in range(8):
                await client.open(str(number), "x" * 2 * MIB)
            refusal = (await client.until("error"))[-1]
            assert (refusal["reason"], refusal["retryable"]) == ("memory_pressure", True)
            held = await world.metric("streamway_edge_request_bytes")
            assert 0 < held <= 0.7 * 16 * MIB
        await becomes(world, "streamway_edge_request_bytes", 0)
