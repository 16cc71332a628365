"""The cache as a process sees it: over a real channel, with its lease in a real Valkey."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr
from redis.asyncio import Redis

from services.cache.app import CacheApp
from services.cache.settings import CacheSettings
from streamway import cachestatus
from streamway.auth import hash_key
from streamway.config import SharedSettings
from streamway.errors import from_rpc_error, from_status
from streamway.rpc import open_channel, own_call
from streamway.rpc.channel import MESH_TOKEN_KEY
from streamway.runtime.clock import SystemClock
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from streamway.valkey.leases import list_leases
from tests.support.ports import free_port
from tests.support.valkey_server import ValkeyServer
from tests.unit.services.cache.requests import answer, body, typed

HIT, MISS = cache_pb2.CACHE_OUTCOME_HIT_EXACT, cache_pb2.CACHE_OUTCOME_MISS
BYPASS = cache_pb2.CACHE_OUTCOME_BYPASS


class Running:
    """A started cache and a stub on it."""

    def __init__(self, app: CacheApp, stub: Any, operations: str) -> None:
        self.app = app
        self.stub = stub
        self.operations = operations


@pytest.fixture
async def start(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[Any]:
    running: list[tuple[CacheApp, grpc.aio.Channel]] = []

    async def make(shared: dict[str, Any] | None = None, **settings: Any) -> Running:
        common = SharedSettings(valkey_url=SecretStr(valkey_server.url), **(shared or {}))
        operations = free_port()
        app = CacheApp(CacheSettings(port=0, operations_port=operations, **settings), common)
        await app.start()
        channel = open_channel(app.address, common)
        running.append((app, channel))
        return Running(app, cache_pb2_grpc.CacheServiceStub(channel), f"http://127.0.0.1:{operations}")

    yield make
    for app, channel in running:
        await channel.close()
        await app.drain()
        await app.close()


async def lookup(stub: Any, request: common_pb2.GenerationRequest, **more: Any) -> cache_pb2.LookupResponse:
    found: cache_pb2.LookupResponse = await stub.Lookup(cache_pb2.LookupRequest(request=request), **more)
    return found


async def store(stub: Any, request: Any, events: Any, **more: Any) -> cache_pb2.StoreResponse:
    done: cache_pb2.StoreResponse = await stub.Store(cache_pb2.StoreRequest(request=request, events=events), **more)
    return done


async def test_an_answer_comes_back_with_its_borders_usage_and_end(start: Any) -> None:
    cache = await start()
    request = typed()
    assert (await lookup(cache.stub, request)).outcome == MISS
    stored = await store(cache.stub, request, answer("Hel", "lo", "!"))
    assert len(stored.entry) == 32
    found = await lookup(cache.stub, body())
    assert found.outcome == HIT, "the OpenAI surface finds what the typed one stored"
    assert [event.token.text for event in found.answer.events] == ["Hel", "lo", "!"]
    assert all(event.position == event.epoch == 0 for event in found.answer.events)
    assert found.answer.events[-1].token.choice_finished.finish_reason == "stop"
    assert (found.answer.finish_reason, found.answer.usage.completion_tokens) == ("stop", 3)
    assert (found.answer.entry, found.answer.model) == (stored.entry, "m")


async def test_h6_the_trailers_of_a_lookup_are_the_block_that_events_and_headers_have(start: Any) -> None:
    cache = await start()
    await store(cache.stub, typed(), answer("Hel", "lo"))
    call = cache.stub.Lookup(cache_pb2.LookupRequest(request=typed()))
    hit = cachestatus.hit_of((await call).answer)
    assert hit.entry
    assert hit.saved_money > 0
    assert cachestatus.named("exact", hit).items() <= dict(await call.trailing_metadata()).items()
    call = cache.stub.Lookup(cache_pb2.LookupRequest(request=typed("other")))
    await call
    told = dict(await call.trailing_metadata())
    assert told["x-streamway-cache"] == "miss"
    assert "x-streamway-cache-entry" not in told


async def test_an_exchange_answers_each_call_and_a_bad_one_fails_alone(start: Any) -> None:
    cache = await start()
    calls = [
        cache_pb2.ExchangeCall(id=1, store=cache_pb2.StoreRequest(request=typed(), events=answer("a"))),
        cache_pb2.ExchangeCall(id=2, lookup=cache_pb2.LookupRequest(request=typed())),
        cache_pb2.ExchangeCall(id=3, lookup=cache_pb2.LookupRequest()),
        cache_pb2.ExchangeCall(id=4),
        cache_pb2.ExchangeCall(id=5, lookup=cache_pb2.LookupRequest(request=typed("other"))),
        cache_pb2.ExchangeCall(id=6, store=cache_pb2.StoreRequest(request=typed(), events=answer("a")[:-1])),
    ]
    replies: dict[int, cache_pb2.ExchangeReply] = {}
    async with own_call(cache.stub.Exchange()) as call:
        await call.write(cache_pb2.ExchangeRequest(calls=calls * 20))
        while len(replies) < 6 or max(replies) < 6:
            for reply in (await call.read()).replies:
                replies[reply.id] = reply
    assert replies[1].store.entry
    assert replies[2].lookup.outcome == HIT
    assert from_status(replies[3].error.status).name == "invalid_argument"
    assert from_status(replies[4].error.status).param == "call"
    assert replies[5].lookup.outcome == MISS
    assert replies[6].store.refused == "not_finished"


async def test_a_batch_over_the_limit_is_refused(start: Any) -> None:
    cache = await start()
    async with own_call(cache.stub.Exchange()) as call:
        await call.write(cache_pb2.ExchangeRequest(calls=[cache_pb2.ExchangeCall()] * 1001))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call.read()
    assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert from_rpc_error(refusal.value).param == "calls"


async def test_what_must_not_be_cached_is_bypassed_and_refused(start: Any) -> None:
    cache = await start(request_limit_bytes=1024)
    for request in (
        typed(sampling=common_pb2.Sampling(temperature=1)),
        typed(cache=common_pb2.CACHE_POLICY_OFF),
        typed("x" * 2000),
        body(raw=b'{"temperature": NaN}'),
    ):
        assert (await lookup(cache.stub, request)).outcome == BYPASS
        assert (await store(cache.stub, request, answer("a"))).refused == "not_eligible"
    asked = typed(sampling=common_pb2.Sampling(temperature=1), cache=common_pb2.CACHE_POLICY_EXACT)
    assert (await store(cache.stub, asked, answer("a"))).entry
    assert (await lookup(cache.stub, asked)).outcome == HIT


async def test_tenants_meet_nowhere_and_are_believed_only_with_the_mesh_token(start: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    rows = [f"  - {{hash: {hash_key(name)}, tenant: {name}}}\n" for name in ("a", "b")]
    keys.write_text("keys:\n" + "".join(rows))
    cache = await start({"mesh_token": SecretStr("secret"), "api_keys_file": keys})
    mesh = {"metadata": ((MESH_TOKEN_KEY, "secret"),)}
    key_a = {"metadata": (("authorization", "Bearer a"),)}
    key_b = {"metadata": (("authorization", "Bearer b"),)}
    entry = (await store(cache.stub, typed(tenant="a"), answer("of a"), **mesh)).entry

    assert (await lookup(cache.stub, typed(), **key_a)).outcome == HIT
    assert (await lookup(cache.stub, typed(tenant="a"), **key_b)).outcome == MISS, "a field does not make the tenant"
    assert (await lookup(cache.stub, typed(tenant="b"), **mesh)).outcome == MISS
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await lookup(cache.stub, typed())
    assert refusal.value.code() == grpc.StatusCode.UNAUTHENTICATED

    foreign = cache_pb2.FeedbackRequest(tenant="a", entry=entry)
    unknown = cache_pb2.FeedbackRequest(entry="0" * 32)
    assert await cache.stub.Feedback(foreign, **key_b) == await cache.stub.Feedback(unknown, **key_b)
    removed = await cache.stub.Invalidate(cache_pb2.InvalidateRequest(tenant="a", all=True), **key_b)
    assert removed.removed == 0
    assert (await cache.stub.Stats(cache_pb2.StatsRequest(tenant="a"), **key_b)).entries == 0
    assert (await cache.stub.Stats(cache_pb2.StatsRequest(), **mesh)).entries == 1
    assert (await cache.stub.Stats(cache_pb2.StatsRequest(tenant="a"), **mesh)).hits == 1


async def test_entries_go_by_feedback_by_model_and_all_together(start: Any) -> None:
    cache = await start()
    ids = [(await store(cache.stub, typed(text), answer("x"))).entry for text in ("1", "2", "3")]
    other = typed(model="other")
    await store(cache.stub, other, answer("x"))
    assert (await cache.stub.Feedback(cache_pb2.FeedbackRequest(entry=ids[0], good=True))).known
    assert (await lookup(cache.stub, typed("1"))).outcome == HIT
    assert (await cache.stub.Feedback(cache_pb2.FeedbackRequest(entry=ids[0], good=False))).known
    assert (await lookup(cache.stub, typed("1"))).outcome == MISS

    async def invalidate(**target: Any) -> int:
        response = await cache.stub.Invalidate(cache_pb2.InvalidateRequest(**target))
        return int(response.removed)

    assert await invalidate(entry=ids[1]) == 1
    assert await invalidate(model="m") == 1
    assert await invalidate(all=True) == 1
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await invalidate()
    assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_it_is_found_by_its_lease_ready_and_counted_and_gone_after_the_drain(start: Any, valkey: Redis) -> None:
    cache = await start(node="cache-7")
    leases = await list_leases(valkey, SystemClock(), "cachenode")
    port = cache.operations.rpartition(":")[2]
    assert leases == {"cache-7": {"address": cache.app.address, "operations_port": port}}
    await lookup(cache.stub, typed())
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{cache.operations}/readyz") as response:
            assert response.status == 200
        async with session.get(f"{cache.operations}/metrics") as response:
            text = await response.text()
    assert 'streamway_cache_lookups_total{outcome="miss"} 1.0' in text
    channel = grpc.aio.insecure_channel(cache.app.address)
    health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    await channel.close()
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    await cache.app.drain()
    assert await list_leases(valkey, SystemClock(), "cachenode") == {}


async def test_the_process_drains_cleanly_on_a_signal(valkey_server: ValkeyServer) -> None:
    environment = {**os.environ, "STREAMWAY_VALKEY_URL": valkey_server.url}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cache", "--port", "0", "--operations-port", "0"),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        # On a busy machine it may say first that it tries its connection to the store again.
        while b"cache_ready" not in (line := await process.stderr.readline()):
            assert b'"level": "info"' in line, line
    process.terminate()
    rest = await process.stderr.read()
    assert (await process.wait(), rest) == (0, b"")


async def test_h3_the_same_words_typed_otherwise_hit_where_that_is_asked_for(start: Any) -> None:
    cache = await start(encoder="off")
    folded = {"cache": common_pb2.CACHE_POLICY_FOLDED}
    await store(cache.stub, typed("How do I reset my password?", **folded), answer("So."))
    again = "hi, HOW do I reset my password"
    found = await lookup(cache.stub, typed(again, **folded))
    assert (found.outcome, found.answer.similarity) == (cache_pb2.CACHE_OUTCOME_HIT_FOLDED, 1.0)
    assert (await lookup(cache.stub, typed(again, cache=common_pb2.CACHE_POLICY_SEMANTIC))).outcome == found.outcome
    explained = await cache.stub.Explain(cache_pb2.ExplainRequest(request=typed(again, **folded)))
    assert (explained.outcome, explained.reason) == ("folded", "same_words")
    assert (await lookup(cache.stub, typed(again))).outcome == MISS
    assert (await lookup(cache.stub, typed(again, cache=common_pb2.CACHE_POLICY_EXACT))).outcome == MISS
    assert (await lookup(cache.stub, typed("how do I change my password", **folded))).outcome == MISS
    assert (await cache.stub.Stats(cache_pb2.StatsRequest())).folded_hits == 2
    await cache.stub.Invalidate(cache_pb2.InvalidateRequest(entry=found.answer.entry))
    assert (await lookup(cache.stub, typed(again, **folded))).outcome == MISS
    async with aiohttp.ClientSession() as session, session.get(f"{cache.operations}/metrics") as response:
        assert 'streamway_cache_lookups_total{outcome="hit_folded"} 2.0' in await response.text()
