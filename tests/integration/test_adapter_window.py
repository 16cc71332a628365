"""A worker's lanes by tier: nobody's backlog keeps another's work out, and what waits too long may go elsewhere."""

from __future__ import annotations

import json

from redis.asyncio import Redis

from streamway.v1 import common_pb2, inference_pb2
from streamway.valkey import keys
from tests.support.adapter_world import attached, enqueue, eventually, request, running_adapter
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer

GOLD, BRONZE = common_pb2.TIER_GOLD, common_pb2.TIER_BRONZE


def of_tier(
    tier: common_pb2.Tier.ValueType, weight: int, prompt: str, **fields: object
) -> common_pb2.GenerationRequest:
    return request(
        prompt, tenant=f"tier {tier}", entitlement=common_pb2.Entitlement(tier=tier, weight=weight), **fields
    )


async def test_i5_a_backlog_of_bronze_does_not_keep_gold_waiting(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine, preload_depth=2) as adapter, attached(adapter) as stream:
        for number in range(12):
            await stream.subscribe(await enqueue(valkey, of_tier(BRONZE, 1, f"bronze {number}")))
        await eventually(lambda: (adapter.window.running, adapter.window.waiting), (1, 2))
        for number in range(3):
            await stream.subscribe(await enqueue(valkey, of_tier(GOLD, 4, f"gold {number}")))
        # Behind nine unread tasks of another tier, and yet here.
        await eventually(lambda: adapter.window.waiting, 4)
        for number in range(1, 16):
            # As many tokens as were estimated: else one turn is worth more than all there is.
            (await engine.next_call(number)).end(completion_tokens=256)
        prompts = [call.prompt for call in engine.calls]
        # By arrival gold would be the last three. When the third is read, a turn of bronze may have begun.
        assert {"gold 0", "gold 1", "gold 2"} <= set(prompts[:11])
        assert sum(prompt.startswith("bronze") for prompt in prompts[:9]) >= 4


async def test_room_that_comes_free_is_filled_from_a_lane_that_was_full(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    """The look at the lanes lasts a second; what is unread in a full one must not wait for it."""
    engine = ScriptedEngine(slots=1, answer=("x",))
    async with running_adapter(valkey_server.url, engine, preload_depth=1) as adapter, attached(adapter) as stream:
        generations = [await enqueue(valkey, of_tier(BRONZE, 1, str(number))) for number in range(60)]
        for generation in generations:
            # With a second for each it would be a minute.
            await stream.all(await stream.subscribe(generation), 20)


async def test_what_waited_too_long_goes_to_the_pool_and_is_taken_from_there_once(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=1)
    durable = {"durability": common_pb2.DURABILITY_RELAXED}
    async with running_adapter(valkey_server.url, engine, degrade_after_s=0.5) as adapter, attached(adapter) as stream:
        await stream.subscribe(await enqueue(valkey, of_tier(BRONZE, 1, "first", **durable)))
        first = await engine.next_call()
        waits = await enqueue(valkey, of_tier(BRONZE, 1, "second", **durable))
        await eventually(lambda: valkey.xlen(keys.lane("adapter-t", "bronze")), 2)
        # From the lane to the pool, and from there to the only worker there is.
        await eventually(lambda: valkey.xlen(keys.lane("adapter-t", "bronze")), 1, 10)
        await eventually(lambda: valkey.xlen(keys.pool("scripted", "bronze")), 1)
        await eventually(lambda: adapter.window.waiting, 1)
        assert adapter._registry.get_sample_value("streamway_tasks_degraded_total") == 1
        first.end()
        second = await engine.next_call(2)
        second.end()
        await stream.all(await stream.subscribe(waits))
        assert adapter._registry.get_sample_value("streamway_tasks_degraded_total") == 1


async def test_the_lease_says_what_runs_of_each_lane_and_what_came_another_way_counts_apart(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=3)
    async with running_adapter(valkey_server.url, engine, preload_depth=2) as adapter, attached(adapter) as stream:

        async def said() -> tuple[str, dict[str, int]]:
            lease = await valkey.hgetall(keys.lease("worker", "adapter-t"))
            return lease[b"running"].decode(), json.loads(lease[b"running_lanes"])

        for tier, prompt in ((GOLD, "gold"), (BRONZE, "bronze"), (BRONZE, "bronze")):
            await stream.subscribe(await enqueue(valkey, of_tier(tier, 1, prompt)))
        await eventually(said, ("3", {"gold": 1, "bronze": 2}), 10)
        next(call for call in engine.calls if call.prompt == "gold").end()
        direct = stream.stub.Generate(inference_pb2.InferenceServiceGenerateRequest(request=request("direct")))
        await eventually(said, ("3", {"bronze": 2}), 10)
        load = await stream.stub.GetLoad(inference_pb2.GetLoadRequest())
        assert (load.running, dict(load.running_lanes), load.preload_depth) == (3, {"bronze": 2}, 2)
        direct.cancel()
