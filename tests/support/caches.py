"""Caches in this process, on one Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from services.cache.app import CacheApp
from services.cache.settings import CacheSettings
from streamway.config import SharedSettings
from streamway.rpc import open_channel
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from tests.support.adapter_world import eventually
from tests.unit.services.cache.requests import answer

EXACT, ALIKE = cache_pb2.CACHE_OUTCOME_HIT_EXACT, cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC
FOLDED, MISS = cache_pb2.CACHE_OUTCOME_HIT_FOLDED, cache_pb2.CACHE_OUTCOME_MISS


class Cache:
    """A started cache and a stub on it."""

    def __init__(self, app: CacheApp, stub: Any) -> None:
        self.app = app
        self.stub = stub

    @property
    def persistence(self) -> Any:
        """Its store."""
        return self.app._answers.persistence

    async def put(self, request: common_pb2.GenerationRequest, *texts: str) -> str:
        """Stores an answer; gives the entry once the store has it."""
        stored = await self.stub.Store(cache_pb2.StoreRequest(request=request, events=answer(*texts)))
        assert stored.entry, stored.refused
        await eventually(lambda: self.kept(stored.entry), True)
        return str(stored.entry)

    def kept(self, entry_id: str) -> bool:
        """The store has said that it has it."""
        found = [each for each in self.app._cache.entries.all() if each.id == entry_id]
        return bool(found) and found[0].kept_at is not None

    async def look(self, request: common_pb2.GenerationRequest) -> cache_pb2.LookupResponse:
        """One lookup."""
        found: cache_pb2.LookupResponse = await self.stub.Lookup(cache_pb2.LookupRequest(request=request))
        return found

    async def outcome(self, request: common_pb2.GenerationRequest) -> int:
        """What it comes to."""
        return int((await self.look(request)).outcome)


@asynccontextmanager
async def cache(url: str, shared: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Cache]:
    """Runs one until the block is left, in order."""
    common = SharedSettings(valkey_url=SecretStr(url), **(shared or {}))
    values = {"encoder": "off", "store_wait_s": 1.0, **settings}
    app = CacheApp(CacheSettings(port=0, operations_port=0, **values), common)
    try:
        await app.start()
        channel = open_channel(app.address, common)
        try:
            yield Cache(app, cache_pb2_grpc.CacheServiceStub(channel))
        finally:
            await channel.close()
        await app.drain()
    finally:
        await app.close()
