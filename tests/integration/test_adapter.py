"""The inference-adapter on a real Valkey and a real gRPC channel."""

from __future__ import annotations

from redis.asyncio import Redis

from tests.support.adapter_world import assert_tile, attached, enqueue, kinds, request, running_adapter, text
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer


async def test_a_task_goes_from_its_lane_through_the_engine_to_its_reader(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("Hel", "lo", " world"))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        number = await stream.subscribe(await enqueue(valkey, request()), after=1)
        events = await stream.all(number)
    assert kinds(events)[0] == "started"
    assert kinds(events)[-1] == "finished"
    assert text(events) == "Hello world"
    assert_tile(events)
