"""Fixtures that all tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from tests.support.valkey_server import ValkeyServer


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One real Valkey for the whole run."""
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    yield server
    server.stop()


@pytest.fixture
async def valkey(valkey_server: ValkeyServer) -> AsyncIterator[Redis]:
    """A client on an empty database."""
    client = Redis.from_url(valkey_server.url)
    await client.flushdb()
    yield client
    await client.aclose()
