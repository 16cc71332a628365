"""Snapshots of sessions, and what an idle worker computes ahead. Real Valkey; simulated and scripted engines."""

from __future__ import annotations

import json
import time
from typing import Any

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.core.snapshot import Snapshot, read, unpack
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.support.adapter_world import attached, enqueue, eventually, request, running_adapter
from tests.support.scripted_engine import ScriptedEngine
from tests.support.two_workers import RELAXED, simulated, worker
from tests.support.valkey_server import ValkeyServer

SESSION = "0123456789abcdef"
SYSTEM = "You answer questions about the history of bridges. " * 30
QUESTION = "Tell me about the bridge over the river, and who built it. " * 100


def turn(
    prompt: str = QUESTION, *, model: str = "simulated", said: str = "", system: str = SYSTEM, **fields: Any
) -> common_pb2.GenerationRequest:
    values: dict[str, Any] = {"session": SESSION, "tenant": "acme", "durability": RELAXED, **fields}
    asked = common_pb2.GenerationRequest(generation=new_generation_id(), model=model, **values)
    asked.limits.max_tokens = 8
    texts = [("system", system), ("user", prompt)]
    if said:
        texts += [("assistant", said), ("user", "And the next one?")]
    asked.messages.extend(common_pb2.Message(role=role, content=content) for role, content in texts)
    return asked


async def ask(
    adapter: Adapter, valkey: Redis, asked: common_pb2.GenerationRequest, name: str
) -> tuple[str, common_pb2.Usage]:
    """One turn at a worker: its text, and what the engine counted."""
    async with attached(adapter) as stream:
        number = await stream.subscribe(await enqueue(valkey, asked, worker=name))
        events = await stream.all(number, 30)
    assert events[-1].HasField("finished"), events[-1]
    return "".join(event.token.text for event in events if event.HasField("token")), events[-1].finished.usage


def counted(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


async def snapshot_of(valkey: Redis, tenant: str = "acme", model: str = "simulated") -> Snapshot | None:
    found: Any = await valkey.hget(keys.session(tenant, SESSION), f"snapshot:{model}")
    return read(found) if found else None


async def announce(valkey: Redis, name: str, tenant: str = "acme", session: str = SESSION) -> None:
    """What a router does for a session that will come to this worker."""
    member = json.dumps([tenant, "simulated", session], separators=(",", ":"))
    await valkey.zadd(keys.arrivals(name), {member: time.time() * 1000})


async def warmed(adapter: Adapter, kind: str) -> None:
    """Waits until a worker has computed one prefix ahead."""
    await eventually(lambda: counted(adapter._registry, "streamway_warmed_prefixes_total", kind=kind), 1.0, 15)


async def written(valkey: Redis) -> bool:
    return await snapshot_of(valkey) is not None


async def test_after_each_turn_a_snapshot_of_its_session_is_kept(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with worker(valkey_server.url, "w0", simulated(), session_s=60) as adapter:
        first = turn()
        first.sampling.temperature = 0.7
        text, usage = await ask(adapter, valkey, first, "w0")
        await eventually(lambda: written(valkey), True)
        snapshot = await snapshot_of(valkey)
        assert snapshot is not None
        assert (snapshot.worker, snapshot.prompt_tokens, snapshot.sampling) == (
            "w0",
            usage.prompt_tokens,
            {"temperature": 0.7},
        )
        key = keys.session("acme", SESSION)
        packed: Any = await valkey.hget(key, "context:simulated")
        context = unpack(packed)
        assert context is not None
        assert len(packed) < len(context) / 2
        assert [message["content"] for message in json.loads(context)["messages"]] == [SYSTEM, QUESTION, text]
        assert 0 < await valkey.pttl(key) <= 60_000


async def test_a_large_context_leaves_its_sizes_and_a_request_that_leaves_no_trace_nothing(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with worker(valkey_server.url, "w0", simulated(), session_bytes=64) as adapter:
        await ask(adapter, valkey, turn(durability=common_pb2.DURABILITY_OFF, tenant="secret"), "w0")
        await ask(adapter, valkey, turn(), "w0")
        await eventually(lambda: written(valkey), True)
        snapshot = await snapshot_of(valkey)
        assert snapshot is not None
        assert snapshot.context_bytes > len(QUESTION)
        assert not await valkey.hexists(keys.session("acme", SESSION), "context:simulated")
        assert not await valkey.exists(keys.session("secret", SESSION))


async def test_what_waits_is_written_when_the_worker_leaves(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with worker(valkey_server.url, "w0", simulated(), drain_notice_s=0, drain_grace_s=5) as adapter:
        await ask(adapter, valkey, turn(), "w0")
        await adapter.drain()
    assert await written(valkey)


async def test_the_first_turn_after_a_move_computes_less_when_it_was_warmed(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    computed: dict[bool, int] = {}
    for warm in (False, True):
        await valkey.flushdb()
        async with (
            worker(valkey_server.url, "old", simulated()) as old,
            worker(valkey_server.url, "new", simulated(), warm=warm) as new,
        ):
            text, _ = await ask(old, valkey, turn(), "old")
            await eventually(lambda: written(valkey), True)
            await announce(valkey, "new")
            if warm:
                await warmed(new, "session")
                assert counted(new._registry, "streamway_warmed_tokens_total") > 1500
            _, usage = await ask(new, valkey, turn(said=text), "new")
            computed[warm] = usage.prompt_tokens - usage.cached_prompt_tokens
            assert counted(new._registry, "streamway_warm_hits_total", kind="session") == float(warm)
    assert computed[False] > 1500
    assert computed[True] < 100


async def test_a_new_worker_begins_with_the_system_prompts_of_all(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with worker(valkey_server.url, "old", simulated(), warm=False) as old:
        for number in range(3):
            await ask(old, valkey, turn("hi", session=f"{number:016x}"), "old")
    async with worker(valkey_server.url, "new", simulated()) as new:
        registry = new._registry
        await warmed(new, "system")
        _, usage = await ask(new, valkey, turn("hello", session="f" * 16), "new")
        assert usage.cached_prompt_tokens > len(SYSTEM) // 4 - 32
        assert counted(registry, "streamway_warm_hits_total", kind="system") == 1.0
        assert counted(registry, "streamway_warm_hits_total", kind="session") == 0.0


async def test_system_prompts_are_kept_by_tenant_and_bounded(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with worker(valkey_server.url, "w0", simulated()) as adapter:
        for number in range(24):
            # Each twice: what comes once is not counted.
            await ask(adapter, valkey, turn("hi", system=f"{number // 2} {SYSTEM}", session=f"{number:016x}"), "w0")
        await ask(adapter, valkey, turn("hi", tenant="other"), "w0")
        await ask(adapter, valkey, turn("hi", tenant="other"), "w0")
    found = {}
    held: Any = await valkey.keys("sw:prompts:*")
    for key in held:
        name = key.decode().split(":")[2]
        found[name] = await valkey.zcard(key)
        assert 0 < await valkey.pttl(key) <= 1_200_000
    assert 1 <= found["{acme/simulated}"] <= 8
    assert found["{other/simulated}"] == 1


async def test_real_work_stops_a_warming_call_at_once(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1, model="simulated")
    async with worker(valkey_server.url, "old", simulated(), warm=False) as old:
        await ask(old, valkey, turn(), "old")
        await eventually(lambda: written(valkey), True)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        await announce(valkey, "adapter-t")
        warming = await engine.next_call()
        assert warming.request.limits.max_tokens == 1
        number = await stream.subscribe(await enqueue(valkey, request(model="simulated")))
        real = await engine.next_call(2)
        assert warming.aborted, "it had the engine's only slot"
        assert not real.aborted
        real.say("x")
        real.end()
        await stream.all(number)
        assert counted(adapter._registry, "streamway_warm_cut_total", reason="real_work") == 1.0
        # It is tried again when the slot is idle.
        again = await engine.next_call(3)
        assert again.request.openai_body == warming.request.openai_body
        again.end()


async def test_another_tenants_session_is_not_what_is_warmed(valkey: Redis, valkey_server: ValkeyServer) -> None:
    """A session's name is its tenant's: the same key of another tenant finds nothing."""
    engine = ScriptedEngine(model="simulated", answer=("x",))
    async with (
        worker(valkey_server.url, "old", simulated(), warm=False) as old,
        running_adapter(valkey_server.url, engine) as adapter,
    ):
        await ask(old, valkey, turn(), "old")
        await eventually(lambda: written(valkey), True)
        for wrong in ("nobody", "acme/x", ""):
            await announce(valkey, "adapter-t", tenant=wrong)
        await valkey.zadd(keys.arrivals("adapter-t"), {b"\xff": 1, b"[]": 2, b'["acme","other","s"]': 3})
        await eventually(lambda: valkey.zcard(keys.arrivals("adapter-t")), 0)
        await announce(valkey, "adapter-t")
        call = await engine.next_call()
        assert call.request.tenant == "acme"
        await warmed(adapter, "session")
        assert len(engine.calls) == 1
