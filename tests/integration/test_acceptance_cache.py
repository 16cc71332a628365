"""Mistakes that caches of this kind have made, against a cache over a real channel."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from aiohttp import web
from redis.asyncio import Redis

from streamway.rpc import own_call
from streamway.rpc.channel import MESH_TOKEN_KEY
from streamway.v1 import cache_pb2, common_pb2
from streamway.valkey import keys
from tests.support.adapter_world import eventually
from tests.support.caches import ALIKE, EXACT, MISS, cache
from tests.support.serving import served
from tests.support.soak import lasting
from tests.support.valkey_server import ValkeyServer
from tests.unit.services.cache.requests import answer, typed

DIMS = 32
# A thousand questions with `make soak`.
MANY = int(lasting(250, 1000))
# None is audited, none compared.
QUIET = {"semantic_threshold": 0.92, "semantic_audit_share": 0, "semantic_compare_share": 0, "encoder_timeout_s": 10.0}
TOKEN, TENANT = "x" * 32, "anonymous"
WORDS = ("amber", "birch", "cobalt", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "jasper")


def _vector(text: str) -> list[float]:
    """Texts with the same two last words are about one thing, more or less near to it."""
    draw = np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))
    about = hashlib.sha256(" ".join(text.lower().split()[-2:]).encode()).digest()
    common = np.random.default_rng(int.from_bytes(about[:8], "little")).standard_normal(DIMS)
    vector = common / np.linalg.norm(common) + draw.uniform(0.1, 0.8) * draw.standard_normal(DIMS) / DIMS**0.5
    return [float(each) for each in vector / np.linalg.norm(vector)]


@asynccontextmanager
async def _encoder() -> AsyncIterator[str]:
    """A server with /v1/embeddings; gives its URL."""

    async def embeddings(request: web.Request) -> web.Response:
        texts = (await request.json())["input"]
        rows = [{"index": number, "embedding": _vector(text)} for number, text in enumerate(texts)]
        return web.json_response({"data": rows, "model": "hash"})

    async with served(web.post("/v1/embeddings", embeddings)) as url:
        yield f"{url}/v1"


def _asks(text: str, **more: object) -> common_pb2.GenerationRequest:
    return typed(text, cache=common_pb2.CACHE_POLICY_SEMANTIC, generation=text, **more)


async def _exchange(stub: object, requests: list[common_pb2.GenerationRequest]) -> list[cache_pb2.LookupResponse]:
    calls = [
        cache_pb2.ExchangeCall(id=number, lookup=cache_pb2.LookupRequest(request=each))
        for number, each in enumerate(requests)
    ]
    replies: dict[int, cache_pb2.LookupResponse] = {}
    async with own_call(stub.Exchange()) as call:  # type: ignore[attr-defined]
        await call.write(cache_pb2.ExchangeRequest(calls=calls))
        while len(replies) < len(calls):
            for reply in (await call.read()).replies:
                replies[reply.id] = reply.lookup
    return [replies[number] for number in range(len(calls))]


@pytest.mark.soak
@pytest.mark.parametrize(("threshold", "most"), [(0.92, MANY), (0.0, 60), (1.0, 60)])
async def test_h6_a_call_a_batch_and_an_explanation_decide_alike_over_many_questions(
    valkey: Redis, valkey_server: ValkeyServer, threshold: float, most: int
) -> None:
    stored = [f"How do I paint {a} {b}" for a in WORDS for b in WORDS[::2]]
    asked = [f"{how} {a} {b}" for how in ("how can i paint", "show me to paint") for a in WORDS for b in WORDS]
    asked += [f"how do i paint {a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:8]]
    assert len(set(asked)) == 1000
    asked = asked[:: 1000 // most]
    async with (
        _encoder() as encoder,
        cache(
            valkey_server.url,
            **{
                **QUIET,
                "encoder": encoder,
                "encoder_model": "hash",
                "encoder_most_waiting": 5000,
                "semantic_threshold": threshold,
            },
        ) as made,
    ):
        for text in stored:
            done = await made.stub.Store(cache_pb2.StoreRequest(request=_asks(text), events=answer(text)))
            assert done.entry
        await eventually(lambda: len(made.app._answers.likeness.partitions), len(stored))
        requests = [_asks(text) for text in asked]
        # In pieces that the encoder is not late for on a busy machine: that would be a miss, and right.
        pieces = [await _exchange(made.stub, requests[at : at + 50]) for at in range(0, len(requests), 50)]
        batched = [each for piece in pieces for each in piece]
        outcomes: Counter[int] = Counter()
        for number, (request, batch) in enumerate(zip(requests, batched, strict=True)):
            single = await made.look(request)
            outcomes[single.outcome] += 1
            assert (single.outcome, single.answer.entry) == (batch.outcome, batch.answer.entry)
            if number % 5:
                continue
            explained = await made.stub.Explain(cache_pb2.ExplainRequest(request=request))
            assert (single.outcome == ALIKE) == (explained.outcome == "serve"), explained
            if single.outcome == ALIKE:
                assert [each.entry for each in explained.candidates if each.reason == "hit"] == [single.answer.entry]
                assert single.answer.similarity >= threshold
    if threshold == 1.0:
        assert set(outcomes) == {MISS}
    else:
        assert outcomes[ALIKE] >= 3, "both sides of the threshold were asked"
        assert outcomes[MISS] >= 3


async def test_h6_the_same_last_message_after_another_conversation_is_another_question(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    def talk(about: str, text: str, tenant: str) -> common_pb2.GenerationRequest:
        request = _asks(text, tenant=tenant)
        for role, said in (("assistant", f"{about} is a painter."), ("user", f"Tell me about {about}.")):
            request.messages.insert(0, common_pb2.Message(role=role, content=said))
        return request

    mesh = ((MESH_TOKEN_KEY, TOKEN),)
    people = ("Anna Berg", "Boris Cole", "Chen Dai", "Dora Ems", "Emil Funk", "Fatou Gueye", "Goran Hess", "Hana Ito")
    async with cache(valkey_server.url, {"mesh_token": TOKEN}, **{**QUIET, "encoder": "auto"}) as made:

        async def found(about: str, text: str, tenant: str = "a") -> cache_pb2.LookupResponse:
            wanted = cache_pb2.LookupRequest(request=talk(about, text, tenant))
            return await made.stub.Lookup(wanted, metadata=mesh)

        for person in people[:4]:
            request = talk(person, "How tall is the painter?", "a")
            wanted = cache_pb2.StoreRequest(request=request, events=answer(f"About {person}."))
            assert (await made.stub.Store(wanted, metadata=mesh)).entry
        await eventually(lambda: len(made.app._answers.likeness.partitions), 4)
        for person in people[4:]:
            for text in ("How tall is the painter?", "How tall is this painter?"):
                assert (await found(person, text)).outcome == MISS
        for person in people[:4]:
            same = await found(person, "How tall is the painter?")
            near = await found(person, "how tall is this painter?")
            assert (same.outcome, near.outcome) == (EXACT, ALIKE), "other words in the same conversation may hit"
            assert near.answer.events[0].token.text == f"About {person}."
            for text in ("How tall is the painter?", "how tall is this painter?"):
                assert (await found(person, text, "b")).outcome == MISS, "another tenant never"


async def test_h6_what_has_expired_frees_its_bytes_within_one_sweep(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with cache(valkey_server.url) as made:
        for number in range(50):
            request = cache_pb2.StoreRequest(request=typed(str(number)), events=answer("x" * 2000), ttl_s=1)
            assert (await made.stub.Store(request)).entry
        stays = await made.put(typed("stays"), "y")
        before = await made.stub.Stats(cache_pb2.StatsRequest())
        assert before.bytes > 50 * 2000
        # A time to live is spread by a tenth.
        await asyncio.sleep(1.2)
        assert made.app._cache.sweep() == 50
        after = await made.stub.Stats(cache_pb2.StatsRequest())
        assert (after.entries, after.bytes < 3000) == (1, True)
        assert (await made.look(typed("stays"))).answer.entry == stays
        await made.persistence.sweep()
        assert len(made.persistence.known) == 1
        assert await valkey.hlen(keys.cache_rows(TENANT)) == 2, "the one entry and the sum"
