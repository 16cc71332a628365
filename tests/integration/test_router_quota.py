"""Quotas at the router: reserved in the store, shared by routers, settled by what was used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from streamway.errors import EventsExpired, QueueTimeout, StreamwayError, from_status
from streamway.lanes import give_away
from streamway.rpc import open_channel
from streamway.runtime.clock import SystemClock
from streamway.v1 import common_pb2, router_pb2_grpc
from streamway.valkey import keys
from streamway.valkey.leases import list_leases
from tests.support.inference_service import HandWorker, failed, finished
from tests.support.router_mesh import ConnectStream, Mesh, ask, mesh
from tests.support.valkey_server import ValkeyServer

ROWS = """
tenants:
  slots: {tier: silver, concurrency: 2}
  tokens: {tier: silver, tokens_per_minute: 1000}
  rare: {tier: silver, requests_per_minute: 2}
  model: {tier: silver, models: {m: {concurrency: 1}}}
  many: {tier: gold, concurrency: 100}
  free: {tier: gold, concurrency: unlimited}
"""


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "tenants.yaml"
    path.write_text(ROWS, encoding="utf-8")
    return {"mesh_token": "secret", "tenants_file": path, "tenants_poll_s": 0.1}


def wanted(tenant: str, output: int = 10, **fields: Any) -> common_pb2.GenerationRequest:
    return ask("x" * 40, tenant=tenant, limits=common_pb2.Limits(max_tokens=output), **fields)


async def opened(stream: ConnectStream, request: common_pb2.GenerationRequest) -> common_pb2.Event:
    await stream.open(request)
    return await stream.first(request.generation, 20)


async def refused(stream: ConnectStream, request: common_pb2.GenerationRequest) -> StreamwayError:
    event = await opened(stream, request)
    assert event.WhichOneof("event") == "error", event
    return from_status(event.error.status)


async def eventually(condition: Callable[[], Awaitable[object]], limit_s: float = 20) -> None:
    async with asyncio.timeout(limit_s):
        while not await condition():
            await asyncio.sleep(0.02)


async def level(valkey: Redis, tenant: str, kind: str) -> float:
    """What a bucket held when it was written last."""
    stored = await valkey.hget(keys.quota(tenant), kind)
    return float(stored.split()[0]) if stored else -1.0


async def in_use(valkey: Redis, tenant: str, model: str = "") -> int:
    count: int = await valkey.zcard(keys.quota_slots(tenant, model))
    return count


def end(made: Mesh, generation: str, event: common_pb2.Event) -> None:
    made.workers[0].hand.push(generation, event)


async def test_what_another_worker_goes_on_with_keeps_its_slot_and_is_charged_by_that_ones_usage(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared, workers=2) as made:
        stream = made.connect()
        event = await opened(stream, wanted("tokens", 200))
        first = event.accepted.worker
        second = "w1" if first == "w0" else "w0"
        workers = {worker.id: worker.hand for worker in made.workers}
        await give_away(valkey, event.generation, first, second)
        workers[first].push(event.generation, failed(2, EventsExpired("g", moved="engine_failed")))
        await eventually(lambda: _is(_subscribed(workers[second]), 1))
        assert await in_use(valkey, "tokens") == 1
        workers[second].push(event.generation, finished(30, prompt_tokens=10, completion_tokens=20))
        await eventually(lambda: _is(in_use(valkey, "tokens"), 0))
        told = made.app._metrics_registry.get_sample_value
        assert told("streamway_router_quota_endings_total", {"outcome": "settled"}) == 1
        assert told("streamway_router_quota_endings_total", {"outcome": "abandoned"}) is None


async def _subscribed(hand: HandWorker) -> int:
    return len(hand.subscribed)


async def test_two_routers_share_the_slots_of_a_tenant(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with (
        mesh(valkey, valkey_server.url, shared=shared) as one,
        mesh(valkey, valkey_server.url, shared=shared, workers=0, id="router-1") as other,
    ):
        here, there = one.connect(), other.connect()
        first = await opened(here, wanted("slots"))
        assert first.WhichOneof("event") == "accepted"
        assert not first.accepted.HasField("allowance"), "there are no limits a minute"
        assert (await opened(there, wanted("slots"))).WhichOneof("event") == "accepted"
        for stream in (here, there):
            problem = await refused(stream, wanted("slots"))
            assert problem.name == "quota_exceeded"
            assert problem.retry_after_s
            assert (problem.metadata["kind"], problem.metadata["limit"]) == ("concurrency", "2")
        end(one, first.generation, finished(9, prompt_tokens=1, completion_tokens=1))
        await eventually(lambda: _is(in_use(valkey, "slots"), 1))
        assert (await opened(there, wanted("slots"))).WhichOneof("event") == "accepted"


async def test_tokens_are_reserved_by_estimate_and_settled_by_usage(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        stream = made.connect()
        first = await opened(stream, wanted("tokens", 200))
        told = first.accepted.allowance
        assert told.tokens.limit == 1000
        assert told.tokens.remaining == 1000 - 211, "40 bytes are 11 tokens, and the answer may have 200"
        assert told.tokens.reset_ms == pytest.approx(12_660, abs=200)
        assert not told.HasField("requests")
        end(made, first.generation, finished(30, prompt_tokens=400, completion_tokens=500))
        await eventually(lambda: _below(level(valkey, "tokens", "tokens"), 400))
        # About 100 are left, of which one request may have nine tenths.
        problem = await refused(stream, wanted("tokens", 200))
        assert (problem.name, problem.metadata["kind"]) == ("quota_exceeded", "tokens_per_minute")
        assert problem.metadata["limit_tokens"] == "1000"
        assert int(problem.metadata["remaining_tokens"]) < 400
        assert problem.retry_after_s
        assert 1 < problem.retry_after_s < 60
        too_large = await refused(stream, wanted("tokens", 256, generation=ask().generation, priority=0, session="s"))
        assert too_large.name == "quota_exceeded"


async def test_what_never_fits_is_refused_for_good_and_refusals_cost_nothing(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared, expected_output_tokens=5000) as made:
        stream = made.connect()
        problem = await refused(stream, wanted("tokens", 1000))
        assert problem.name == "request_too_large_for_quota"
        assert not problem.row.retryable
        assert problem.retry_after_s is None
        # No worker has this model, so nothing comes of it.
        missing = await refused(stream, wanted("tokens", 100, model="nobody"))
        assert missing.name == "model_not_found"
        await eventually(lambda: _is(in_use(valkey, "tokens"), 0))
        assert await level(valkey, "tokens", "tokens") == pytest.approx(1000)


async def test_an_end_before_the_engine_costs_nothing_and_one_behind_it_what_was_made(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        stream = made.connect()
        first = await opened(stream, wanted("tokens", 200))
        end(made, first.generation, failed(2, QueueTimeout(1)))
        await eventually(lambda: _is(in_use(valkey, "tokens"), 0))
        assert await level(valkey, "tokens", "tokens") == pytest.approx(1000)
        second = await opened(stream, wanted("tokens", 200))
        # Ten tokens, positions 3 to 12.
        end(made, second.generation, failed(13, QueueTimeout(1)))
        await eventually(lambda: _is(in_use(valkey, "tokens"), 0))
        assert await level(valkey, "tokens", "tokens") == pytest.approx(1000 - 11 - 10, abs=150)


async def test_requests_a_minute_and_the_limits_of_a_model(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        stream = made.connect()
        told = (await opened(stream, wanted("rare"))).accepted.allowance
        assert (told.requests.limit, told.requests.remaining) == (2, 1)
        assert (await opened(stream, wanted("rare"))).WhichOneof("event") == "accepted"
        problem = await refused(stream, wanted("rare"))
        assert problem.metadata["kind"] == "requests_per_minute"
        assert (await opened(stream, wanted("model"))).WhichOneof("event") == "accepted"
        of_model = await refused(stream, wanted("model"))
        assert (of_model.metadata["model"], of_model.metadata["limit"]) == ("m", "1")


async def test_a_tenant_without_limits_never_asks_the_store(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        stream = made.connect()
        assert (await opened(stream, wanted("free"))).WhichOneof("event") == "accepted"
        assert [key async for key in valkey.scan_iter("sw:quota:*")] == []


async def test_leases_are_renewed_while_a_generation_lives_and_end_with_its_router(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as one:
        async with mesh(valkey, valkey_server.url, shared=shared, workers=0, id="router-1", quota_lease_s=1.5) as other:
            there = other.connect()
            for _ in range(2):
                assert (await opened(there, wanted("slots"))).WhichOneof("event") == "accepted"
            until = asyncio.get_running_loop().time() + 3
            while asyncio.get_running_loop().time() < until:
                assert await in_use(valkey, "slots") == 2
                await one.renew()
                await asyncio.sleep(0.05)
        here = one.connect()
        async with asyncio.timeout(20):
            while (await opened(here, wanted("slots"))).WhichOneof("event") == "error":
                assert await in_use(valkey, "slots") <= 2
                await one.renew()
                await asyncio.sleep(0.05)


@contextlib.contextmanager
def router_process(folder: Path, url: str, tenants: Path, lease_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """A router named killed, in a process of its own."""
    environment = {
        **os.environ,
        "STREAMWAY_VALKEY_URL": url,
        "STREAMWAY_MESH_TOKEN": "secret",
        "STREAMWAY_TENANTS_FILE": str(tenants),
        "STREAMWAY_ROUTER_QUOTA_LEASE_S": str(lease_s),
    }
    command = [sys.executable, "-m", "services.router", "--id", "killed", "--port", "0", "--operations-port", "0"]
    with (folder / "router.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


async def test_g1_slots_of_a_killed_router_are_free_within_the_lease(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any], tmp_path: Path
) -> None:
    limit, lease_s = 100, 3.0
    options: dict[str, Any] = {"shared": shared, "queue_limit": 1000, "quota_lease_s": lease_s}
    async with mesh(valkey, valkey_server.url, worker_fields={"slots": "1000"}, **options) as made:
        with router_process(tmp_path, valkey_server.url, shared["tenants_file"], lease_s) as process:
            address = ""
            async with asyncio.timeout(60):
                while not address:
                    await made.renew()
                    leases = await list_leases(valkey, SystemClock(), "router")
                    address = leases.get("killed", {}).get("address", "")
                    await asyncio.sleep(0.1)
            channel = open_channel(address, made.shared)
            call = router_pb2_grpc.RouterServiceStub(channel).Connect(metadata=made.metadata)
            there, here = ConnectStream(call), made.connect()
            for _ in range(limit):
                await made.renew()
                told = await opened(there, wanted("many"))
                assert told.WhichOneof("event") == "accepted", told
            assert (await refused(here, wanted("many"))).name == "quota_exceeded"
            assert await in_use(valkey, "many") == limit
            process.kill()
            killed, admitted = time.monotonic(), 0
            while admitted < limit:
                await made.renew()
                told = await opened(here, wanted("many"))
                admitted += told.WhichOneof("event") == "accepted"
                assert await in_use(valkey, "many") <= limit
                assert time.monotonic() - killed < lease_s + 20
                await asyncio.sleep(0 if admitted else 0.05)
            assert (await refused(here, wanted("many"))).name == "quota_exceeded"
            await there.close()
            await channel.close()


async def test_while_the_store_is_away_a_router_goes_by_what_it_knew(tmp_path: Path, shared: dict[str, Any]) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    server = ValkeyServer(folder)
    client = Redis.from_url(server.url)
    try:
        async with mesh(client, server.url, shared=shared, keep_workers_s=60, quota_lease_s=1.5) as made:
            stream = made.connect()
            assert (await opened(stream, wanted("slots"))).WhichOneof("event") == "accepted"
            server.stop()
            last = await opened(stream, wanted("slots"))
            assert last.accepted.durability == common_pb2.DURABILITY_OFF
            problem = await refused(stream, wanted("slots"))
            assert problem.name == "quota_exceeded", "the slot that was taken in the store counts here too"
            strict = await refused(stream, wanted("slots", durability=common_pb2.DURABILITY_STRICT))
            assert strict.name == "store_unavailable"
            server.restart()
            # An empty store learns from the renewals what is held.
            await eventually(lambda: _is(in_use(client, "slots"), 2), 30)
    finally:
        server.stop()
        await client.aclose()


async def test_what_was_begun_without_the_store_is_charged_when_it_ends_with_it(
    tmp_path: Path, shared: dict[str, Any]
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    server = ValkeyServer(folder)
    client = Redis.from_url(server.url)
    try:
        async with mesh(client, server.url, shared=shared, keep_workers_s=60, quota_lease_s=1.5) as made:
            stream = made.connect()
            server.stop()
            told = await opened(stream, wanted("tokens", 200))
            assert told.accepted.allowance.tokens.remaining == 1000 - 211
            second = await opened(stream, wanted("tokens", 200))
            assert second.accepted.allowance.tokens.remaining == pytest.approx(1000 - 2 * 211, abs=150)
            end(made, second.generation, failed(2, QueueTimeout(1)))
            server.restart()
            await eventually(lambda: _is(in_use(client, "tokens"), 1), 30)
            end(made, told.generation, finished(30, prompt_tokens=400, completion_tokens=300))
            await eventually(lambda: _is(in_use(client, "tokens"), 0), 30)
            assert await level(client, "tokens", "tokens") == pytest.approx(300, abs=150)
    finally:
        server.stop()
        await client.aclose()


async def _is(value: Awaitable[int], wanted_value: int) -> bool:
    return await value == wanted_value


async def _below(value: Awaitable[float], most: float) -> bool:
    return 0 <= await value < most


async def test_bulk_is_refused_while_memory_is_short_and_the_rest_is_not(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    # Some memory is always in use, so that so low a mark is always reached.
    async with mesh(valkey, valkey_server.url, shared=shared, memory_watermark=0.0001) as made:
        stream = made.connect()
        problem = await refused(stream, wanted("free", priority=-1))
        assert problem.name == "memory_pressure"
        assert problem.retry_after_s
        assert (await opened(stream, wanted("free"))).WhichOneof("event") == "accepted"


async def test_a_changed_quota_is_known_to_every_router_without_a_restart(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    path = tmp_path / "changing.yaml"
    rows = "tenants: {acme: {tier: gold, requests_per_minute: %d}}\nanonymous: acme\n"
    path.write_text(rows % 100_000)
    options = {"tenants_file": path}
    async with (
        mesh(valkey, valkey_server.url, shared=options, queue_limit=10_000) as first,
        mesh(valkey, valkey_server.url, workers=0, id="router-1", shared=options, queue_limit=10_000) as second,
    ):
        streams = [made.connect() for made in (first, second)]

        async def limits() -> set[int]:
            await first.renew()
            events = [await opened(stream, ask(tenant="acme")) for stream in streams]
            return {event.accepted.allowance.requests.limit for event in events}

        assert await limits() == {100_000}
        path.write_text(rows % 77_000)
        # Looked for twice a second; more is a loaded machine's.
        async with asyncio.timeout(20):
            while await limits() != {77_000}:
                await asyncio.sleep(0.2)
        for stream in streams:
            await stream.close()
