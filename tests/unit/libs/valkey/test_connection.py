"""Connecting to Valkey: what is waited for, and what stops the start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from streamway.runtime.process import StartError
from streamway.valkey import keys
from streamway.valkey.connection import blocking_client, connect
from tests.support.valkey_server import ValkeyServer


@pytest.fixture
def server_with_password(tmp_path: Path) -> Iterator[ValkeyServer]:
    # The server asks for a password only after it has answered the fixture's own ping.
    server = ValkeyServer(tmp_path)
    yield server
    server.stop()


async def test_a_connected_client_answers(valkey_server: ValkeyServer) -> None:
    client = await connect(valkey_server.url)
    try:
        assert await client.ping()
    finally:
        await client.aclose()


async def test_the_blocking_client_is_one_connection(valkey_server: ValkeyServer) -> None:
    client = blocking_client(valkey_server.url)
    try:
        first = await client.client_id()
        assert await client.client_id() == first
    finally:
        await client.aclose()


async def test_a_wrong_password_is_told_at_once_and_never_shown(server_with_password: ValkeyServer) -> None:
    async with Redis.from_url(server_with_password.url) as admin:
        await admin.config_set("requirepass", "right")
    began = time.monotonic()
    path = server_with_password.url.removeprefix("unix://")
    for url in (f"unix://:wrong-one@{path}", f"unix://{path}?password=wrong-one"):
        with pytest.raises(StartError, match="refuses the password") as caught:
            await connect(url, start_timeout_s=30)
        assert "wrong-one" not in str(caught.value)
    assert time.monotonic() - began < 10


async def test_a_server_that_may_evict_tasks_stops_the_start(valkey: Redis, valkey_server: ValkeyServer) -> None:
    await valkey.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(StartError, match="maxmemory-policy is allkeys-lru"):
            await connect(valkey_server.url)
    finally:
        await valkey.config_set("maxmemory-policy", "noeviction")


async def test_a_missing_server_is_waited_for_and_then_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="Valkey does not answer at unix://") as caught:
        await connect(f"unix://{tmp_path}/none.sock", start_timeout_s=0.2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis://localhost:notaport"])
async def test_an_url_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(StartError, match="STREAMWAY_VALKEY_URL"):
        await connect(url, start_timeout_s=0.1)


def test_keys_of_one_owner_share_a_slot() -> None:
    assert keys.lane("a", "bulk") == "sw:lane:{a}:bulk"
    assert keys.generation("g") == "sw:gen:{g}"
    assert keys.lease("worker", "a") == "sw:worker:{a}"
    assert keys.lease_index("worker") == "sw:workers"
    assert keys.cache_entry("t", "e") == "sw:cache:{t}:e"
    assert keys.cache_rows("t") == "sw:cacherows:{t}"


@pytest.mark.parametrize(
    ("priority", "tier", "class_"),
    [
        (-128, 1, "bulk"),
        (-1, 0, "bulk"),
        (0, 0, "gold"),
        (127, 1, "gold"),
        (0, 2, "silver"),
        (0, 3, "bronze"),
        (0, 9, "bronze"),
    ],
)
def test_a_negative_priority_is_bulk_and_other_work_has_a_lane_for_each_tier(
    priority: int, tier: int, class_: str
) -> None:
    assert keys.task_class(priority, tier) == class_
