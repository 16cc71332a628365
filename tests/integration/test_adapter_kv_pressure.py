"""A worker whose KV cache is full: nothing begins beside what runs, its lease says so, and it goes on when there is room."""

from __future__ import annotations

import aiohttp
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from streamway.valkey import keys
from tests.support.adapter_world import WORKER, attached, enqueue, eventually, request, running_adapter
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer


async def gauge(adapter: Adapter, name: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"http://{adapter.operations_address}/metrics") as said:
        lines = (await said.text()).splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


async def test_a_full_kv_cache_holds_prefill_up_until_there_is_room(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=2)
    settings = {"engine_check_s": 0.1, "kv_mark_s": 0.3, "lease_s": 1.0}
    async with running_adapter(valkey_server.url, engine, **settings) as adapter, attached(adapter) as stream:
        await stream.subscribe(await enqueue(valkey, request("one")))
        first = await engine.next_call(1)
        engine.kv_used = 0.95

        async def said() -> bytes | None:
            return await valkey.hget(keys.lease("worker", WORKER), "kv_full")

        await eventually(said, b"1", 30)
        assert await gauge(adapter, "streamway_kv_full") == 1
        assert await gauge(adapter, "streamway_kv_used_ratio") == 0.95
        await stream.subscribe(await enqueue(valkey, request("two")))
        await eventually(lambda: (adapter.window.running, adapter.window.waiting), (1, 1), 30)
        engine.kv_used = 0.5
        second = await engine.next_call(2)
        assert second.prompt == "two"
        await eventually(said, b"0", 30)
        first.end()
        second.end()
