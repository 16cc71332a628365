"""A worker that is short of memory leaves bulk work where it is, and a tenant's that has too much here to others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from redis.asyncio import Redis

from streamway.errors import from_rpc_error
from streamway.v1 import common_pb2, inference_pb2
from streamway.valkey import keys
from tests.support.adapter_world import WORKER, attached, enqueue, eventually, kinds, request, running_adapter, state_of
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer


async def test_bulk_waits_in_its_lane_while_memory_is_short_and_interactive_work_runs(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("yes",))
    bulk = await enqueue(valkey, request("bulk", priority=-1))
    # Some memory is always in use, so that so low a mark is always reached.
    async with (
        running_adapter(valkey_server.url, engine, memory_watermark=0.0001) as adapter,
        attached(adapter) as stream,
    ):
        urgent = await enqueue(valkey, request("urgent"))
        assert kinds(await stream.all(await stream.subscribe(urgent)))[-1] == "finished"
        call = stream.stub.Generate(inference_pb2.InferenceServiceGenerateRequest(request=request(priority=-1)))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert from_rpc_error(refused.value).name == "memory_pressure"
        assert (await stream.stub.GetLoad(inference_pb2.GetLoadRequest())).memory_pressed
        assert await valkey.hget(keys.lease("worker", WORKER), "memory_pressed") == b"1"
        await asyncio.sleep(0.5)
        assert await state_of(valkey, bulk) == "queued"
        assert (await valkey.xpending(keys.lane(WORKER, "bulk"), keys.LANE_GROUP))["pending"] == 0
    assert [call.prompt for call in engine.calls] == ["urgent"]
    async with running_adapter(valkey_server.url, engine):
        await eventually(lambda: state_of(valkey, bulk), "finished", 20)


async def test_new_work_of_a_tenant_with_too_much_here_is_for_whoever_has_room_and_nobody_elses(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("default_tier: bronze\ntenants:\n  loud: {tier: bronze, buffered_bytes: 2000}\n")
    durable = {"durability": common_pb2.DURABILITY_RELAXED}
    engine = ScriptedEngine(slots=4)
    async with (
        running_adapter(valkey_server.url, engine, shared={"tenants_file": tenants}) as adapter,
        attached(adapter) as stream,
    ):

        def degraded() -> float | None:
            return adapter._registry.get_sample_value("streamway_tasks_degraded_total")

        # Its request alone is more than its tenant may have, so what comes after it goes to the pool, once.
        first = await enqueue(valkey, request("x" * 3000, tenant="loud", **durable))
        await eventually(lambda: len(engine.calls), 1)
        assert degraded() == 1, "the only worker there is has taken it from there"
        second = await enqueue(valkey, request("more", tenant="loud", **durable))
        other = await enqueue(valkey, request("other", tenant="quiet", **durable))
        await eventually(lambda: len(engine.calls), 3, 20)
        assert degraded() == 2
        assert await valkey.xlen(keys.pool("scripted", "gold")) == 2
        bulk = inference_pb2.InferenceServiceGenerateRequest(request=request(tenant="loud", priority=-1))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.stub.Generate(bulk).read()
        assert from_rpc_error(refused.value).name == "memory_pressure"
        for call in engine.calls:
            call.say("done")
            call.end()
        for generation in (first, second, other):
            await eventually(lambda id_=generation: state_of(valkey, id_), "finished")
        assert kinds(await stream.all(await stream.subscribe(other)))[-1] == "finished", "nobody else's is dropped"
        # With its requests the tenant is within its bound again.
        await enqueue(valkey, request("later", tenant="loud", **durable))
        (await engine.next_call(4)).end()
        assert degraded() == 2
