"""G1: what was held for a tenant is free again when an edge or a router is killed, and no more than the limit ever lives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis

from streamway.tenancy import hash_key
from streamway.valkey import keys
from tests.support.clients import Frames, frames
from tests.support.mesh import MeshProcesses
from tests.support.valkey_server import ValkeyServer

LIMIT = 100
LEASE_S = 3.0
KEY = "acme-key"
AUTH = {"Authorization": f"Bearer {KEY}"}


@dataclass(frozen=True)
class Limited:
    mesh: MeshProcesses
    store: str


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """One worker with room for all, two routers, one edge."""
    folder: Path = tmp_path_factory.mktemp("quota")
    tenants = folder / "tenants.yaml"
    tenants.write_text(f"tenants: {{acme: {{tier: gold, concurrency: {LIMIT}, keys: [{hash_key(KEY)}]}}}}\n")
    server = ValkeyServer(folder)
    environment = {
        "STREAMWAY_VALKEY_URL": server.url,
        "STREAMWAY_TENANTS_FILE": str(tenants),
        "STREAMWAY_ROUTER_QUOTA_LEASE_S": str(LEASE_S),
        "STREAMWAY_ADAPTER_SLOTS": str(2 * LIMIT),
        # Slow enough to live through the test.
        "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S": "2",
    }
    mesh = MeshProcesses(folder / "mesh", arguments=("--routers", "2"), environment=environment, start_s=120)
    try:
        yield Limited(mesh, server.url)
    finally:
        mesh.close()
        server.stop()


async def opened(client: Frames, id_: str) -> str:
    """ "accepted", or the reason of the refusal."""
    # Each in a session of its own, so that both routers have some.
    fields = {
        "params": {"max_tokens": 500},
        "on_disconnect": "cancel",
        "cache": "off",
        "session": f"{id(client)}-{id_}",
    }
    await client.open(id_, "Tell me something.", **fields)
    while True:
        frame = await client.receive()
        if frame.get("id") == id_ and frame["type"] in ("accepted", "error"):
            return "accepted" if frame["type"] == "accepted" else str(frame["reason"])


@asynccontextmanager
async def full(mesh: MeshProcesses) -> AsyncIterator[Frames]:
    """All slots of the tenant held, and a connection more."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(frames(mesh.websocket_url, additional_headers=AUTH)) for _ in range(5)
        ]
        for client in clients[1:]:
            for number in range(LIMIT // 4):
                assert await opened(client, f"q{number}") == "accepted"
        assert await opened(clients[0], "more") == "quota_exceeded"
        yield clients[0]
        for client in clients:
            # What they did not read would keep the answer to their goodbye from them, for ten seconds each.
            client.socket.transport.abort()


async def at_most(store: Redis, most: int, within_s: float) -> None:
    """Waits until no more slots than that are held; there are never more than the limit."""
    until = time.monotonic() + within_s
    while (held := await store.zcount(keys.quota_slots("acme"), time.time() * 1000, "+inf")) > most:
        assert held <= LIMIT
        assert time.monotonic() < until, f"{held} slots are held"
        await asyncio.sleep(0.05)


async def test_g1_slots_of_a_killed_edge_are_free_within_the_lease(limited: Limited) -> None:
    async with Redis.from_url(limited.store) as store:
        async with full(limited.mesh):
            old = limited.mesh.kill("edge-0")
            await at_most(store, 0, LEASE_S + 10)
        await limited.mesh.restarted("edge-0", old)
        async with full(limited.mesh):
            assert await store.zcard(keys.quota_slots("acme")) == LIMIT
        await at_most(store, 0, LEASE_S + 10)


async def test_g1_slots_of_a_killed_router_of_a_mesh_are_free_within_the_lease(limited: Limited) -> None:
    async with Redis.from_url(limited.store) as store:
        async with full(limited.mesh) as client:
            old = limited.mesh.kill("router-0")
            until, number = time.monotonic() + LEASE_S + 15, 0
            while (told := await opened(client, f"new{number}")) != "accepted":
                assert told in ("quota_exceeded", "router_unavailable")
                assert await store.zcard(keys.quota_slots("acme")) <= LIMIT
                assert time.monotonic() < until
                number += 1
                await asyncio.sleep(0.1)
            assert await store.zcard(keys.quota_slots("acme")) <= LIMIT
        await limited.mesh.restarted("router-0", old)
