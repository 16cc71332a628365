"""The same through a router: whom a request is retried with, what its client sees, and what the router learns of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from streamway.errors import EngineFailed, from_status
from streamway.v1 import common_pb2, router_pb2
from tests.support.adapter_world import assert_tile, eventually, kinds, text
from tests.support.router_mesh import Mesh, ask, mesh, until
from tests.support.scripted_engine import ScriptedCall, ScriptedEngine
from tests.support.two_workers import RELAXED, worker
from tests.support.valkey_server import ValkeyServer

OFF = common_pb2.DURABILITY_OFF


async def _generate(made: Mesh, wanted: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
    async with asyncio.timeout(20):
        call = made.stub.Generate(router_pb2.GenerateRequest(request=wanted), metadata=made.metadata)
        return [event async for response in call for event in response.events]


async def _first_call(*engines: ScriptedEngine) -> tuple[ScriptedCall, ScriptedEngine]:
    """The call that comes first, and the engine that has none."""
    await until(lambda: any(engine.calls for engine in engines), 10)
    called = next(engine for engine in engines if engine.calls)
    return called.calls[0], next(engine for engine in engines if engine is not called)


@pytest.mark.parametrize("durability", [RELAXED, OFF], ids=["relaxed", "off"])
async def test_a_stalled_engine_costs_its_client_time_and_nothing_else(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    engines = ScriptedEngine(model="m"), ScriptedEngine(model="m")
    limit = {"first_token_timeout_s": 3.0}
    async with (
        worker(valkey_server.url, "a", engines[0], **limit),
        worker(valkey_server.url, "b", engines[1], **limit),
        mesh(valkey, valkey_server.url, workers=0, poll_s=0.05) as made,
    ):
        wanted = ask(durability=durability, tenant="t", idempotency_key="once")
        reading = asyncio.ensure_future(_generate(made, wanted))
        stalled, other = await _first_call(*engines)
        stalled.sink.started()
        call = await other.next_call()
        # The key still means this generation while it is made again.
        again = asyncio.ensure_future(_generate(made, ask(durability=durability, tenant="t", idempotency_key="once")))
        call.say("one ", "two ")
        call.end()
        events = await reading
        assert kinds(events)[:3] == ["accepted", "started", "started"]
        assert kinds(events)[-1] == "finished"
        assert text(events) == "one two "
        assert_tile(events, first=1)
        attached = await again
        assert attached[0].accepted.attached_to == wanted.generation
        assert text(attached) == "one two "
        assert sum(len(engine.calls) for engine in engines) == 2
        # What takeover and retry hide from clients is not hidden from breakers: each end counts where it was made.
        first, second = ("a", "b") if stalled in engines[0].calls else ("b", "a")
        await until(lambda: made.judged(second) == (1, 0))
        assert made.judged(first) == (1, 1)
        await until(lambda: made.app.in_flight == 0)


@pytest.mark.parametrize("durability", [RELAXED, OFF], ids=["relaxed", "off"])
async def test_where_all_engines_are_broken_the_client_is_told_when_to_come_again(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    engines = ScriptedEngine(model="m"), ScriptedEngine(model="m")
    async with (
        worker(valkey_server.url, "a", engines[0]),
        worker(valkey_server.url, "b", engines[1]),
        mesh(valkey, valkey_server.url, workers=0, poll_s=0.05) as made,
    ):
        reading = asyncio.ensure_future(_generate(made, ask(durability=durability, tenant="t")))
        first, other = await _first_call(*engines)
        first.sink.failed(EngineFailed("x", "broken"))
        (await other.next_call()).sink.failed(EngineFailed("y", "broken"))
        events = await reading
        error = from_status(events[-1].error.status)
        assert (error.name, error.row.retryable) == ("engine_failed", True)
        assert error.retry_after_s is not None
        await eventually(lambda: made.app.in_flight, 0)
        await until(lambda: made.judged("a") == made.judged("b") == (1, 1))
