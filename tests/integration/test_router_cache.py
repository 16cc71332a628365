"""The router with a real cache in front of its workers, and with caches that are slow, stuck or gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from services.cache.app import CacheApp
from services.cache.settings import CacheSettings
from streamway import cachestatus
from streamway.config import SharedSettings
from streamway.errors import from_status
from streamway.rpc import MeshServer, MountedService
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.inference_service import finished, started, token
from tests.support.router_mesh import Mesh, ask, mesh, until
from tests.support.valkey_server import ValkeyServer


@asynccontextmanager
async def running_cache(url: str) -> AsyncIterator[CacheApp]:
    app = CacheApp(CacheSettings(port=0, operations_port=0), SharedSettings(valkey_url=url))
    await app.start()
    try:
        yield app
    finally:
        await app.close()


class StuckCache(cache_pb2_grpc.CacheServiceServicer):
    """Takes every call and never answers one."""

    def __init__(self) -> None:
        self.calls = 0

    async def Exchange(
        self, requests: AsyncIterator[cache_pb2.ExchangeRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[cache_pb2.ExchangeResponse]:
        async for request in requests:
            self.calls += len(request.calls)
        if False:
            yield


@asynccontextmanager
async def stuck_cache(url: str) -> AsyncIterator[tuple[str, StuckCache]]:
    servicer = StuckCache()
    mounted = MountedService("streamway.v1.CacheService", servicer, cache_pb2_grpc.add_CacheServiceServicer_to_server)
    server = MeshServer("127.0.0.1", 0, SharedSettings(valkey_url=url), [mounted])
    await server.start()
    try:
        yield server.address, servicer
    finally:
        await server.stop(0)


def cold(text: str = "hello", **fields: Any) -> common_pb2.GenerationRequest:
    request = ask(text, **fields)
    request.sampling.temperature = 0
    return request


async def _connected(made: Mesh) -> None:
    await until(lambda: made.app.caches_connected == 1)


async def test_an_answer_is_stored_after_its_end_and_the_same_question_gets_it_as_a_live_answer(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        running_cache(valkey_server.url) as cache,
        mesh(valkey, valkey_server.url, caches=(cache.address,)) as made,
    ):
        await _connected(made)
        stream, hand = made.connect(), made.workers[0].hand
        first = await stream.open(cold())
        assert (await stream.first(first)).accepted.cache == "miss"
        await until(lambda: bool(hand.subscribed))
        merged = token(5, "lo there")
        merged.first_position, merged.token.units = 4, 2
        last = token(6, "")
        last.token.choice_finished.finish_reason = "stop"
        hand.push(first, started(2), token(3, "hel"), merged, last)
        hand.push(first, finished(7, prompt_tokens=3, completion_tokens=4))
        await until(lambda: made.app.in_flight == 0)

        second = ""
        for _ in range(50):  # the store is off the path: it may take a moment
            second = await stream.open(cold())
            if (await stream.first(second)).accepted.cache == "exact":
                break
            await asyncio.sleep(0.02)
        await until(lambda: "finished" in stream.kinds(second))
        events = stream.of(second)
        assert [event.WhichOneof("event") for event in events] == [
            "accepted",
            "started",
            "token",
            "token",
            "token",
            "finished",
        ]
        assert [(event.first_position or event.position, event.position) for event in events] == [
            (1, 1),
            (2, 2),
            (3, 3),
            (4, 5),
            (6, 6),
            (7, 7),
        ]
        assert "".join(event.token.text for event in events) == "hello there"
        assert (events[0].accepted.route, events[0].accepted.worker, events[0].epoch) == ("cache", "", 0)
        usage = events[-1].finished.usage
        assert (usage.from_cache, usage.prompt_tokens, usage.completion_tokens) == (True, 3, 4)

        assert events[0].accepted.durability == common_pb2.DURABILITY_RELAXED
        call = made.stub.Resume(router_pb2.ResumeRequest(generation=second, cursor="0-3"), metadata=made.metadata)
        rest = [event async for response in call for event in response.events]
        assert [event.WhichOneof("event") for event in rest] == ["resumed", "token", "token", "finished"]
        assert [event.position for event in rest] == [0, 5, 6, 7], "a hit is resumed like a live answer"
        off = await stream.first(await stream.open(cold(durability=common_pb2.DURABILITY_OFF)))
        assert (off.accepted.cache, off.accepted.durability) == ("exact", common_pb2.DURABILITY_OFF)
        assert not await valkey.exists(keys.response(off.generation))

        other = await stream.first(await stream.open(cold(tenant="bolt")))
        assert other.accepted.cache == "miss", "the same words of another tenant never meet"
        warm = await stream.first(await stream.open(ask()))
        assert warm.accepted.cache == "off"

        call = made.stub.Generate(router_pb2.GenerateRequest(request=cold()), metadata=made.metadata)
        relayed = [event async for response in call for event in response.events]
        assert [event.position for event in relayed] == [1, 2, 3, 5, 6, 7]
        block = cachestatus.named("exact", relayed[0].accepted.cache_hit)
        assert block.items() <= dict(await call.trailing_metadata()).items(), "trailers say what the events say"
        assert float(block["x-streamway-cache-saved-money"]) == pytest.approx(3 * 0.05e-6 + 4 * 0.20e-6)

        look = router_pb2.GetGenerationRequest(generation=second)
        for _ in range(1000):
            try:
                found = await made.stub.GetGeneration(look, metadata=made.metadata)
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.02)
        assert (found.state, found.worker) == (router_pb2.GENERATION_STATE_FINISHED, "")
        await stream.close()


async def test_a_paced_answer_comes_as_slowly_as_it_was_made_within_bounds_and_a_cancel_ends_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        running_cache(valkey_server.url) as cache,
        mesh(valkey, valkey_server.url, caches=(cache.address,)) as made,
    ):
        await _connected(made)
        stream, hand = made.connect(), made.workers[0].hand
        first = await stream.open(cold())
        await until(lambda: bool(hand.subscribed))
        pieces = [token(3 + number, "x") for number in range(60)]
        for number, piece in enumerate(pieces):
            piece.offset_ms = 1000 * number
        pieces[-1].token.choice_finished.finish_reason = "stop"
        hand.push(first, started(2), *pieces)
        hand.push(first, finished(63, prompt_tokens=3, completion_tokens=60))
        await until(lambda: made.app.in_flight == 0)
        for _ in range(50):
            if (await stream.first(await stream.open(cold()))).accepted.cache == "exact":
                break
            await asyncio.sleep(0.02)

        began = time.monotonic()
        paced = await stream.open(cold(replay=common_pb2.REPLAY_PACED))
        await until(lambda: "finished" in stream.kinds(paced))
        assert time.monotonic() - began >= 59 * 0.02
        assert [event.position for event in stream.of(paced)] == list(range(1, 64))

        cut = await stream.open(cold(replay=common_pb2.REPLAY_PACED))
        await until(lambda: stream.kinds(cut).count("token") > 5)
        await stream.cancel(cut)
        await until(lambda: "error" in stream.kinds(cut))
        assert from_status(stream.of(cut)[-1].error.status).name == "cancelled"
        assert stream.kinds(cut).count("token") < 60
        await stream.close()


async def test_caches_are_found_by_their_lease(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, poll_s=0.05) as made:
        stream = made.connect()
        assert (await stream.first(await stream.open(cold("a")))).accepted.cache == "unavailable"
        async with running_cache(valkey_server.url):
            await _connected(made)
            assert (await stream.first(await stream.open(cold("b")))).accepted.cache == "miss"
        await until(lambda: made.app.caches_connected == 0)
        assert (await stream.first(await stream.open(cold("c")))).accepted.cache == "unavailable"
        await stream.close()


async def test_a_stuck_cache_costs_a_few_requests_their_budget_and_then_nobody_anything(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        stuck_cache(valkey_server.url) as (address, servicer),
        mesh(valkey, valkey_server.url, caches=(address,), cache_budget_ms=20, worker_fields={"slots": "100"}) as made,
    ):
        await _connected(made)
        stream = made.connect()
        began = time.monotonic()
        for number in range(40):
            event = await stream.first(await stream.open(cold(f"{number}")))
            assert event.accepted.cache == "unavailable"
        # 40 budgets would be 0.8 s; after five late answers the cache is left alone for a second.
        assert servicer.calls < 20
        assert time.monotonic() - began < 20
        await stream.close()


async def test_a2_a_cancel_while_the_router_decides_never_reaches_a_lane(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        stuck_cache(valkey_server.url) as (address, servicer),
        mesh(valkey, valkey_server.url, caches=(address,), cache_budget_ms=500) as made,
    ):
        await _connected(made)
        stream = made.connect()
        generation = await stream.open(cold())
        await until(lambda: servicer.calls == 1)
        await stream.cancel(generation)
        event = await stream.first(generation)
        assert from_status(event.error.status).name == "cancelled"
        left = await stream.open(cold("b"), location=False)
        await until(lambda: servicer.calls == 2)
        await stream.close()
        await asyncio.sleep(0.7)
        assert await made.workers[0].take() == [], left


async def test_answers_that_ended_badly_are_not_offered(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with (
        running_cache(valkey_server.url) as cache,
        mesh(valkey, valkey_server.url, caches=(cache.address,)) as made,
    ):
        await _connected(made)
        stream, worker = made.connect(), made.workers[0]
        generation = await stream.open(cold())
        await until(lambda: bool(worker.hand.subscribed))
        error = common_pb2.Event(position=4, error=common_pb2.Error())
        worker.hand.push(generation, started(2), token(3, "x"), error)
        await until(lambda: made.app.in_flight == 0)
        await asyncio.sleep(0.1)
        assert (await stream.first(await stream.open(cold()))).accepted.cache == "miss"
        await stream.close()
