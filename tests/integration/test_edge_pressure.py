"""An edge under pressure: who is told to come another way, what waits, who gives way, and that all of it ends again."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
import websockets

from streamway.v1 import common_pb2
from tests.support.clients import frames
from tests.support.edge_world import EdgeWorld, chat, edge_world
from tests.support.flood import CROWDED, again_and_again, flood, level
from tests.support.inference_service import finished, started, token


async def opened(world: EdgeWorld, content: str) -> common_pb2.GenerationRequest:
    """The request with this prompt, once the router has it."""

    def found() -> list[common_pb2.GenerationRequest]:
        return [request for request in world.router.opened if request.messages[0].content == content]

    await world.router.until(lambda: bool(found()), 30)
    return found()[0]


async def test_with_too_many_requests_new_websockets_are_sent_elsewhere_and_bulk_waits_until_it_is_over() -> None:
    async with edge_world(**CROWDED) as world, frames(world.websocket_url) as client:
        async with flood(world):
            await level(world, "requests", 1)
            with pytest.raises(websockets.ConnectionClosed) as caught:
                async with websockets.connect(world.websocket_url) as late:
                    await late.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 4013
            assert "server-sent events" in caught.value.rcvd.reason
            assert await world.metric("streamway_edge_refused_websockets_total") == 1
            # Other ways are open, and those who are in stay in.
            await client.open("bulk", "bulk", priority=-1)
            await client.open("now", "now")
            await opened(world, "now")
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{world.url}/v1/generations", json=chat("by http")) as response,
            ):
                assert response.status == 202
            assert await world.metric("streamway_edge_bulk_waiting") == 1
            assert not [request for request in world.router.opened if request.messages[0].content == "bulk"]
        await level(world, "requests", 0)
        bulk = await opened(world, "bulk")
        world.speak(bulk.generation, "ok")
        await client.until("finished", "bulk")
        async with frames(world.websocket_url) as again:
            await again.send(type="ping", t=1)
            await again.until("pong")


async def test_bulk_that_has_waited_long_enough_is_refused_and_a_cancel_does_not_wait() -> None:
    async with edge_world(**CROWDED, bulk_wait_s=1) as world, frames(world.websocket_url) as client, flood(world):
        await level(world, "requests", 1)
        await client.open("a", "bulk", priority=-1)
        await client.open("b", "bulk", priority=-1)
        await client.send(type="cancel", id="b")
        assert (await client.until("error", "b"))[-1]["reason"] == "cancelled"
        refusal = (await client.until("error", "a"))[-1]
        assert (refusal["reason"], refusal["retryable"]) == ("edge_overloaded", True)
        assert await world.metric("streamway_edge_bulk_waiting") == 0


async def test_slow_first_tokens_are_noticed_and_so_is_their_end() -> None:
    settings = {"review_s": 0.2, "pressure_first_token_ms": 0.001, "pressure_samples": 2}
    async with edge_world(**settings) as world, frames(world.websocket_url) as client:

        async def ask(number: int) -> None:
            await client.open(f"{number}", "hi")
            world.speak((await world.router.asked(number + 1)).generation, "ok")
            await client.until("finished", f"{number}")

        async with again_and_again(ask):
            await level(world, "latency", 1)
        await level(world, "latency", 0)


async def test_idle_connections_give_way_clients_with_a_word_and_those_to_workers_at_once() -> None:
    # All of the score is the wait for first tokens, and any wait is too long.
    settings = {"pressure_weights": (0, 1, 0), "pressure_first_token_ms": 0.001, "pressure_score": 0.0, "review_s": 0.3}
    async with (
        edge_world(**settings, pressure_kept=(0, 0, 0), router_answer_s=60) as world,
        frames(world.websocket_url) as idle,
        frames(world.websocket_url) as busy,
        frames(world.websocket_url) as other,
    ):
        await busy.open("a", "hi")
        request = await world.router.asked()
        # One that stays without a word: it is no less busy, and reads nothing at the worker.
        world.router.answer = lambda _: None
        await other.open("b", "hi")
        await world.router.asked(2)
        world.worker.push(request.generation, started(), token(3, "x"))
        going = (await idle.until("going_away"))[-1]
        assert (going["reason"], going["live"]) == ("going_away", [])
        await asyncio.wait_for(idle.socket.wait_closed(), 20)
        assert idle.socket.close_code == 1001
        assert await world.metric("streamway_edge_drained_connections_total", why="pressure") == 1
        assert await world.metric("streamway_edge_evicted_upstream_total") == 0
        world.worker.push(request.generation, token(4, "y"), finished(5))
        seen = await busy.until("finished", "a")
        assert "going_away" not in [frame["type"] for frame in seen], "something ran on it"
        await busy.until("going_away")
        async with asyncio.timeout(30):
            while not await world.metric("streamway_edge_evicted_upstream_total"):
                await asyncio.sleep(0.05)
