"""When the edge ends a connection by itself: worn out, growing, without credentials, silent. Clients are told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
import websockets
from redis.asyncio import Redis

from streamway.auth import hash_key
from tests.support.clients import Frames, frames, text_of
from tests.support.edge_world import edge_world
from tests.support.inference_service import finished, started, token
from tests.support.journaled import journaled_world
from tests.support.valkey_server import ValkeyServer

SECRET = "0123456789abcdef0123456789abcdef"
ROWS = f"""
tenants:
  acme: {{tier: silver, keys: [{hash_key("sk-1")}]}}
  bolt: {{tier: bronze, keys: [{hash_key("sk-2")}]}}
jwt: {{issuer: me, audience: mesh, secret_file: secret, leeway_s: 0}}
"""


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "secret").write_text(SECRET + "\n")
    path = tmp_path / "tenants.yaml"
    path.write_text(ROWS, encoding="utf-8")
    return {"mesh_token": "t", "tenants_file": path, "tenants_poll_s": 0.1}


def bearer(shown: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {shown}"}}


async def closed(client: Frames) -> int | None:
    """Reads what is left; the close code."""
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            await client.receive()
    return client.socket.close_code


async def test_a_worn_out_connection_is_drained_and_its_answer_goes_on_at_the_next(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with journaled_world(valkey, valkey_server.url) as world:
        edge = await world.edge(connection_requests=2, connection_drain_s=0.5)
        where = f"ws://{edge.address}/v1/stream"
        async with frames(where) as client:
            await client.open("a", "hi")
            short = await world.answer(1)
            await client.open("b", "hi")
            long = await world.answer(2)
            await long.say("Hel")
            await client.until("token", "b")
            await short.end()
            going = (await client.until("going_away"))[-1]
            assert going["reason"] == "going_away"
            assert going["live"] == [{"id": "b", "generation": long.id, "cursor": long.cursor}]
            await client.open("c", "late")
            assert (await client.until("error", "c"))[-1]["reason"] == "going_away"
            assert await closed(client) == 1001
        async with frames(where) as client:
            await client.send(type="resume", id="b", generation=long.id, after=going["live"][0]["cursor"])
            await client.until("resumed", "b")
            await long.say("lo")
            await long.end()
            assert text_of(await client.until("finished", "b")) == "lo"


async def test_what_has_no_channel_ends_before_a_worn_out_connection_does() -> None:
    async with (
        edge_world(connection_requests=1, connection_drain_s=0.1) as world,
        frames(world.websocket_url) as client,
    ):
        await client.open("a", "hi")
        first = await world.router.asked(1)
        await client.open("b", "hi")
        second = await world.router.asked(2)
        world.speak(first.generation, "ok")
        await client.until("going_away")
        await asyncio.sleep(0.5)
        world.worker.push(second.generation, started(), token(3, "whole"), finished(4))
        assert text_of(await client.until("finished", "b")) == "whole"
        assert await closed(client) == 1001
        assert await world.metric("streamway_edge_drained_connections_total", why="requests") == 1


async def test_what_is_kept_for_one_client_may_not_grow_for_ever() -> None:
    settings = {"review_s": 0.2, "connection_growth_bytes_per_s": 10_000, "connection_growth_samples": 2}
    async with (
        edge_world(**settings, connection_drain_s=0.2) as world,
        frames(world.websocket_url) as client,
        frames(world.websocket_url) as other,
    ):
        # A router that never answers: requests are kept until it does.
        world.router.answer = lambda _: None

        async def ask() -> None:
            for number in range(1000):
                await client.open(str(number), "x" * 20_000)
                await asyncio.sleep(0.02)

        asking = asyncio.get_running_loop().create_task(ask())
        assert (await client.until("going_away"))[-1]["reason"] == "going_away"
        assert await closed(client) == 1001
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError, websockets.ConnectionClosed):
            await asking
        assert await world.metric("streamway_edge_drained_connections_total", why="growth") == 1
        await other.send(type="ping", t=1)
        assert (await other.until("pong"))[-1]["t"] == 1


async def test_a_connection_whose_key_is_taken_away_gets_nothing_more_and_ends(shared: dict[str, Any]) -> None:
    async with (
        edge_world(shared, heartbeat_s=1.0, connection_drain_s=0.5) as world,
        frames(world.websocket_url, **bearer("sk-1")) as client,
        frames(world.websocket_url, **bearer("sk-2")) as other,
    ):
        await client.open("a", "hi")
        running = await world.router.asked(1)
        world.worker.push(running.generation, started(), token(3, "x"))
        await client.until("token", "a")
        shared["tenants_file"].write_text(ROWS.replace(hash_key("sk-1"), hash_key("sk-new")))
        await client.until("going_away")
        await client.open("b", "late")
        assert (await client.until("error", "b"))[-1]["reason"] == "unauthenticated"
        assert await closed(client) == 4001
        await world.router.until(lambda: running.generation in world.router.cancelled)
        await other.open("c", "hi")
        answer = await world.router.asked(2)
        world.speak(answer.generation, "ok")
        await other.until("finished", "c")
        assert await world.metric("streamway_edge_drained_connections_total", why="credentials") == 1


async def test_a_key_that_is_taken_away_opens_nothing_also_before_the_next_heartbeat(shared: dict[str, Any]) -> None:
    async with edge_world(shared, heartbeat_s=60) as world, frames(world.websocket_url, **bearer("sk-1")) as client:
        shared["tenants_file"].write_text(ROWS.replace(hash_key("sk-1"), hash_key("sk-new")))
        async with asyncio.timeout(20):
            while not await world.metric("streamway_config_reloads_total", outcome="applied"):
                await asyncio.sleep(0.05)
        await client.open("a", "late")
        assert (await client.until("error", "a"))[-1]["reason"] == "unauthenticated"
        assert world.router.opened == []


async def test_a_connection_whose_token_expires_ends(shared: dict[str, Any]) -> None:
    async with edge_world(shared, heartbeat_s=0.5) as world:
        made = {"iss": "me", "aud": "mesh", "exp": time.time() + 4, "tenant": "acme"}
        shown = jwt.encode(made, SECRET, "HS256")
        async with frames(world.websocket_url, **bearer(shown)) as client:
            going = (await client.until("going_away"))[-1]
            assert (going["reason"], going["live"]) == ("unauthenticated", [])
            assert await closed(client) == 4001


async def test_an_http_connection_is_closed_after_the_last_request_that_it_carries() -> None:
    async with edge_world(connection_requests=3) as world, aiohttp.ClientSession() as session:
        said = []
        for _ in range(4):
            async with session.get(f"{world.url}/healthz") as response:
                said.append(response.headers.get("Connection", ""))
        assert said == ["", "", "close", ""]
    async with edge_world(connection_requests=1) as world, aiohttp.ClientSession() as session:
        body = {"model": "simulated", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        asking = asyncio.get_running_loop().create_task(session.post(f"{world.url}/v1/chat/completions", json=body))
        world.speak((await world.router.asked()).generation, "ok")
        async with await asking as response:
            assert response.headers["Connection"] == "close"
            assert "[DONE]" in await response.text()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
async def test_a_peer_that_takes_nothing_for_too_long_is_gone() -> None:
    settings = {"silent_s": 1, "socket_send_bytes": 4096, "slow_bytes": 64 * 1024**2, "buffer_bytes": 128 * 1024**2}
    async with edge_world(**settings) as world:
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.setblocking(False)
        host, _, port = world.edge.address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.sock_connect(reader, (host, int(port)))
        body = b'{"model":"simulated","stream":true,"messages":[{"role":"user","content":"hi"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        await loop.sock_sendall(reader, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        request = await world.router.asked()
        world.worker.push(request.generation, started(), *(token(3 + i, "x" * 20_000) for i in range(100)))
        await world.router.until(lambda: request.generation in world.router.cancelled, 30)
        reader.close()
