"""An encoder's server that gives other vectors than it did: what is lost is likeness, and only for as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from redis.asyncio import Redis

from services.cache.core.records import unpack_entry
from streamway.auth.identity import ANONYMOUS
from streamway.v1 import cache_pb2, common_pb2
from streamway.valkey import keys
from tests.support.adapter_world import eventually
from tests.support.caches import ALIKE, EXACT, MISS, cache
from tests.support.serving import served
from tests.support.valkey_server import ValkeyServer
from tests.unit.services.cache.requests import typed

SETTINGS: dict[str, Any] = {
    "encoder_model": "letters",
    "encoder_timeout_s": 5.0,
    "semantic_threshold": 0.92,
    "semantic_audit_share": 0,
    "semantic_compare_share": 0,
}


class Letters:
    """Counts letters into `dims` numbers; or gives `instead` for every text."""

    def __init__(self) -> None:
        self.url = ""
        self.dims = 32
        self.instead: str | None = None

    async def embeddings(self, request: web.Request) -> web.Response:
        texts = (await request.json())["input"]
        items = [
            f'{{"index": {at}, "embedding": {self.instead or self._counts(text)}}}' for at, text in enumerate(texts)
        ]
        return web.Response(text=f'{{"data": [{", ".join(items)}]}}', content_type="application/json")

    def _counts(self, text: str) -> list[int]:
        return [sum(ord(letter) % self.dims == at for letter in text) for at in range(self.dims)]


@pytest.fixture
async def letters() -> AsyncIterator[Letters]:
    made = Letters()
    async with served(web.post("/v1/embeddings", made.embeddings)) as url:
        made.url = f"{url}/v1"
        yield made


def asks(text: str) -> common_pb2.GenerationRequest:
    request = typed(text, cache=common_pb2.CACHE_POLICY_SEMANTIC)
    assert isinstance(request, common_pb2.GenerationRequest)
    return request


@pytest.mark.parametrize(
    "bad",
    ["[1, 2, 3]", f"[{', '.join(['NaN'] * 32)}]", f"[{', '.join(['1e300'] * 32)}]", "[]"],
    ids=["another dimension", "nan", "beyond float32", "empty"],
)
async def test_h6_vectors_that_cannot_be_compared_cost_likeness_and_nothing_else(
    valkey_server: ValkeyServer, valkey: Redis, letters: Letters, bad: str
) -> None:
    async with cache(valkey_server.url, encoder=letters.url, **SETTINGS) as made:
        await made.put(asks("How do I reset my password?"), "Click.")
        await eventually(lambda: made.outcome(asks("How can I reset my password?")), ALIKE)
        letters.instead = bad
        assert await made.outcome(asks("How could I reset my password?")) == MISS
        explained = await made.stub.Explain(cache_pb2.ExplainRequest(request=asks("How would I reset my password?")))
        assert not explained.candidates
        await made.put(asks("Where is Leeds?"), "In England.")
        assert await made.outcome(asks("Where is Leeds?")) == EXACT
        assert await made.outcome(asks("How do I reset my password?")) == EXACT
        letters.instead = None
        assert await made.outcome(asks("How could I reset my password?")) == ALIKE
        likeness = made.app._answers.likeness
        assert likeness is not None
        assert len(likeness.partitions) == 1, "what had no vector is found by its key only"


async def test_h6_an_encoder_that_comes_back_with_another_dimension_makes_its_own_vectors(
    valkey_server: ValkeyServer, valkey: Redis, letters: Letters
) -> None:
    async with cache(valkey_server.url, encoder=letters.url, **SETTINGS) as before:
        entry = await before.put(asks("How do I reset my password?"), "Click.")
        await eventually(lambda: before.outcome(asks("How can I reset my password?")), ALIKE)
    letters.dims = 48
    async with cache(valkey_server.url, encoder=letters.url, **SETTINGS) as after:
        assert await after.outcome(asks("How do I reset my password?")) == EXACT
        await eventually(lambda: after.outcome(asks("How can I reset my password?")), ALIKE)

        name = keys.cache_entry(ANONYMOUS.tenant, entry)

        async def numbers() -> int:
            alike = unpack_entry(await valkey.get(name)).alike  # type: ignore[arg-type]  # bytes: no decoding
            return len(alike.vector) // 4 if alike is not None else 0

        await eventually(numbers, 48)
