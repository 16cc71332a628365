"""A worker that is short of memory leaves bulk work where it is."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from redis.asyncio import Redis

from streamway.errors import from_rpc_error
from streamway.v1 import inference_pb2
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
        await asyncio.sleep(0.5)
        assert await state_of(valkey, bulk) == "queued"
        assert (await valkey.xpending(keys.lane(WORKER, "bulk"), keys.LANE_GROUP))["pending"] == 0
    assert [call.prompt for call in engine.calls] == ["urgent"]
    async with running_adapter(valkey_server.url, engine):
        await eventually(lambda: state_of(valkey, bulk), "finished", 20)
