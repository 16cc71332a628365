"""The concurrency limit of a worker, with the simulated engine: down under load, up again when it is quick."""

from __future__ import annotations

import asyncio
import json

from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from streamway.runtime.clock import SystemClock
from streamway.simulation.settings import SimulationSettings
from streamway.v1 import common_pb2, inference_pb2
from streamway.valkey import keys
from streamway.valkey.leases import Lease
from tests.support.adapter_world import WORKER, attached, enqueue, eventually, kinds, request, running_adapter
from tests.support.valkey_server import ValkeyServer

SLOTS = 20
# All of it is quick here; a first token that is held back for a second is late wherever this runs.
RULE = {"slow_ms": 800.0, "quick_ms": 800.0, "every_s": 0.3, "window_s": 3.0, "cpu": 1.0, "roomy": 1.0}


def asking(held_back_s: float) -> common_pb2.GenerationRequest:
    faults = {"first_token_delay_s": held_back_s}
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "simulated", "messages": messages, "max_tokens": 2, "streamway_faults": faults}
    return request("hello", model="simulated", openai_body=json.dumps(body).encode())


async def test_the_limit_goes_down_under_load_and_up_when_first_tokens_are_quick(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    options = BackendOptions(kind="simulated", slots=SLOTS, simulation=SimulationSettings(decode_base_ms=1.0))
    engine = make_backend(options, WORKER)
    async with running_adapter(valkey_server.url, engine, limit=RULE) as adapter, attached(adapter) as stream:
        assert await told(adapter, valkey) == (SLOTS, SLOTS)
        numbers = [await stream.subscribe(await enqueue(valkey, asking(1.0))) for _ in range(3 * SLOTS)]
        await eventually(lambda: adapter.window.slots, 10, 30)
        await eventually(lambda: told(adapter, valkey), (10, 10), 10)
        for number in numbers:
            assert kinds(await stream.all(number, 30))[-1] == "finished", "what was accepted is not cut"
        assert moves(adapter, "down", "first_token") == 2

        async def quick() -> int:
            """A few short calls; what is in use stays far below the slots."""
            for number in [await stream.subscribe(await enqueue(valkey, asking(0.0))) for _ in range(4)]:
                await stream.all(number)
            await asyncio.sleep(0.05)
            return adapter.window.slots

        await eventually(quick, SLOTS, 60)
        await eventually(lambda: told(adapter, valkey), (SLOTS, SLOTS), 10)
        assert moves(adapter, "up", "room") == 1
        load = await stream.stub.GetLoad(inference_pb2.GetLoadRequest())
        assert (load.slots, load.limit) == (SLOTS, SLOTS)


async def test_a_worker_with_little_in_use_gives_way_when_the_routers_are_full(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    options = BackendOptions(kind="simulated", slots=SLOTS, simulation=SimulationSettings(decode_base_ms=1.0))
    rule = {**RULE, "mesh_generations": 500, "window_s": 60.0}
    routers = [Lease(valkey, SystemClock(), "router", f"r{n}", lambda: {"generations": "251"}, 60) for n in range(2)]
    async with (
        running_adapter(valkey_server.url, make_backend(options, WORKER), limit=rule) as adapter,
        attached(adapter) as stream,
    ):
        numbers = [await stream.subscribe(await enqueue(valkey, asking(1.0))) for _ in range(12)]
        for number in numbers:
            await stream.all(number, 30)
        assert adapter.window.slots == SLOTS, "twelve of twenty alone are no reason"
        for router in routers:
            await router.renew()
        await eventually(lambda: adapter.window.slots, 10, 15)


async def told(adapter: Adapter, valkey: Redis) -> tuple[int, int]:
    """The limit as the lease and as the metric say it."""
    lease = await valkey.hget(keys.lease("worker", WORKER), "limit")
    metric = adapter._registry.get_sample_value("streamway_concurrency_limit")
    return int(lease or 0), int(metric or 0)


def moves(adapter: Adapter, direction: str, reason: str) -> float:
    labels = {"direction": direction, "reason": reason}
    return adapter._registry.get_sample_value("streamway_concurrency_moves_total", labels) or 0.0
