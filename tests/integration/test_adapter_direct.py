"""The inference-adapter without a router: direct Generate, GetLoad, faults of the protocol, tenants."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import grpc.aio
import jwt
import pytest
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.core.capabilities import Capabilities
from streamway.affinity import session_key
from streamway.auth import hash_key
from streamway.errors import from_rpc_error
from streamway.models.abilities import Ability
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, inference_pb2
from streamway.valkey import keys
from streamway.valkey.leases import list_leases
from tests.support.adapter_world import (
    WORKER,
    Attached,
    assert_tile,
    attached,
    enqueue,
    eventually,
    kinds,
    reason,
    request,
    running_adapter,
    text,
)
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer


def generate(stream: Attached, wanted: common_pb2.GenerationRequest, **options: Any) -> Any:
    return stream.stub.Generate(inference_pb2.InferenceServiceGenerateRequest(request=wanted), **options)


async def all_of(call: Any) -> list[common_pb2.Event]:
    return [event async for response in call for event in response.events]


async def refusal(call: Any) -> str:
    """The reason with which a call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await all_of(call)
    return from_rpc_error(refused.value).name


async def test_a_direct_call_gets_every_event_from_accepted_on(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("Hel", "lo"))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        wanted = request(session="s")
        wanted.generation = ""
        events = await all_of(generate(stream, wanted))
    assert kinds(events)[:2] == ["accepted", "started"]
    assert kinds(events)[-1] == "finished"
    assert_tile(events, first=1)
    assert text(events) == "Hello"
    accepted = events[0].accepted
    assert (accepted.worker, accepted.route, accepted.cursor, accepted.source) == (WORKER, "direct", "0-1", "")
    assert (accepted.model, accepted.session, events[0].epoch) == ("scripted", "s", 0)
    assert {len(event.generation) for event in events} == {36}
    assert {event.subscription for event in events} == {0}


async def test_a_direct_generation_can_be_read_on_attach_too(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    wanted = request()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        number = await stream.subscribe(wanted.generation)
        call = generate(stream, wanted)
        engine_call = await engine.next_call()
        engine_call.say("a", "b")
        engine_call.end()
        direct = await all_of(call)
        subscribed = await stream.all(number)
    assert text(direct) == text(subscribed) == "ab"
    assert_tile(direct, first=1)
    assert_tile(subscribed, first=1)


async def test_leaving_a_direct_call_aborts_the_engine(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        call = generate(stream, request())
        engine_call = await engine.next_call()
        engine_call.say("a")
        await call.read()
        call.cancel()
        await eventually(lambda: engine_call.aborted, True)
        await eventually(lambda: adapter.window.running, 0)


async def test_leaving_a_direct_call_in_the_queue_never_reaches_the_engine(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        first = generate(stream, request("first"))
        await engine.next_call()
        second = generate(stream, request("second"))
        response = await second.read()
        assert response.events[0].accepted.queue_position == 1
        second.cancel()
        await eventually(lambda: adapter.window.waiting, 0)
        engine.calls[0].end()
        await all_of(first)
        assert len(engine.calls) == 1


async def test_a_direct_call_beyond_the_window_is_refused(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine, preload_depth=0) as adapter, attached(adapter) as stream:
        running = generate(stream, request())
        await engine.next_call()
        assert await refusal(generate(stream, request())) == "queue_full"
        running.cancel()


async def test_a_direct_call_waits_for_room_that_a_read_of_the_lanes_has_set_aside(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1, answer=("x",))
    async with running_adapter(valkey_server.url, engine, preload_depth=0) as adapter, attached(adapter) as stream:
        room, all_of_it = adapter._worker.room, dict.fromkeys(keys.CLASSES, 1)
        # The loops that read the lanes set something aside now and then, most of all when they begin.
        granted = room.reserve(keys.CLASSES, shared=False)
        while granted != all_of_it:
            room.release(granted)
            await asyncio.sleep(0.01)
            granted = room.reserve(keys.CLASSES, shared=False)
        call = generate(stream, request())
        await asyncio.sleep(0.1)
        assert engine.calls == []
        room.release(granted)
        assert kinds(await all_of(call))[-1] == "finished"


async def test_a_direct_call_is_refused_while_the_engine_does_not_answer(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with (
        running_adapter(valkey_server.url, engine, engine_check_s=0.1) as adapter,
        attached(adapter) as stream,
    ):
        engine.broken = True
        await eventually(lambda: adapter.window.free, 0)
        assert await refusal(generate(stream, request())) == "no_workers"


async def test_an_id_that_is_known_is_refused_and_its_generation_goes_on(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        wanted = request()
        running = generate(stream, wanted)
        call = await engine.next_call()
        assert await refusal(generate(stream, wanted)) == "duplicate_id"
        assert not call.aborted
        call.end()
        await all_of(running)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model": ""}, "invalid_argument"),
        ({"model": "other"}, "model_not_found"),
        ({"generation": "1"}, "invalid_argument"),
        ({"sampling": common_pb2.Sampling(temperature=2.5)}, "invalid_argument"),
        ({"sampling": common_pb2.Sampling(top_p=float("nan"))}, "invalid_argument"),
        ({"sampling": common_pb2.Sampling(n=17)}, "invalid_argument"),
        ({"sampling": common_pb2.Sampling(top_k=-2)}, "invalid_argument"),
        ({"limits": common_pb2.Limits(max_tokens=0)}, "invalid_argument"),
        ({"limits": common_pb2.Limits(stop=["x"] * 17)}, "invalid_argument"),
        ({"limits": common_pb2.Limits(stop=["x" * 257])}, "invalid_argument"),
        ({"priority": 200}, "invalid_argument"),
        ({"deadline_unix_ms": -1}, "invalid_argument"),
        ({"session": "x" * 257}, "invalid_argument"),
        ({"metadata": {"a": "x" * 256}}, "invalid_argument"),
    ],
)
async def test_a_request_that_holds_nonsense_is_refused(
    valkey_server: ValkeyServer, change: dict[str, Any], expected: str
) -> None:
    engine = ScriptedEngine(answer=("x",))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        assert await refusal(generate(stream, request(**change))) == expected
    assert engine.calls == []


async def test_messages_must_be_there_and_have_known_roles(valkey_server: ValkeyServer) -> None:
    async with running_adapter(valkey_server.url, ScriptedEngine()) as adapter, attached(adapter) as stream:
        wanted = request()
        wanted.messages[0].role = "wizard"
        assert await refusal(generate(stream, wanted)) == "invalid_argument"
        del wanted.messages[:]
        assert await refusal(generate(stream, wanted)) == "invalid_argument"


async def test_load_and_lease_say_what_the_worker_is_and_does(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1)
    able, unable = frozenset({Ability.CONTINUES}), frozenset({Ability.TOOLS, Ability.GRAMMAR})
    engine.capabilities = Capabilities(able, unable, "some", "1.2", kv_blocks=64, kv_block_tokens=16, adapters=("law",))
    async with running_adapter(valkey_server.url, engine, preload_depth=2) as adapter, attached(adapter) as stream:
        for _ in range(2):
            await stream.subscribe(await enqueue(valkey, request("x" * 400)))
        await eventually(lambda: adapter.window.waiting, 1)
        load = await stream.stub.GetLoad(inference_pb2.GetLoadRequest())
        assert (load.worker, list(load.models), load.slots) == (WORKER, ["scripted"], 1)
        assert (load.running, load.queued, load.window_free, load.subscriptions) == (1, 1, 1, 2)
        assert (load.kv_used, load.context_tokens, load.engine.healthy, load.draining) == (0.25, 1000, True, False)
        assert load.load_tokens == 2 * (100 + 256)
        told = load.engine.capabilities
        assert (list(told.can), list(told.cannot)) == (["continues"], ["grammar", "tools"])
        assert (told.profile, told.version, told.kv_blocks, told.kv_block_tokens) == ("some", "1.2", 64, 16)
        assert list(told.adapters) == ["law"]

        async def lease() -> dict[str, str]:
            return (await list_leases(valkey, SystemClock(), "worker"))[WORKER]

        async def running_in_lease() -> str:
            return (await lease())["running"]

        await eventually(running_in_lease, "1")
        fields = await lease()
        assert fields["address"] == adapter.address
        assert json.loads(fields["models"]) == [{"name": "scripted", "context_tokens": 1000, "first_token_ms": 0.0}]
        assert (load.limit, fields["limit"]) == (1, "1")
        assert fields["cannot"] == "grammar tools"
        assert (fields["slots"], fields["queued"], fields["window_free"]) == ("1", "1", "1")
        assert (fields["draining"], fields["healthy"], fields["kv_used"]) == ("0", "1", "0.2500")
        assert int(fields["load_tokens"]) == 2 * (100 + 256)
        assert int(fields["reported_ms"]) > 0
    assert await list_leases(valkey, SystemClock(), "worker") == {}
    assert await valkey.exists(keys.lease("worker", WORKER)) == 0


async def code_of(stream: Attached) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as broken:
        while await stream.read():
            pass
    return broken.value.code()


@pytest.mark.parametrize(
    "commands",
    [
        [inference_pb2.AttachCommand()],
        [inference_pb2.AttachCommand(subscribe=inference_pb2.Subscribe(generation=new_generation_id()))],
        [inference_pb2.AttachCommand(cancel=inference_pb2.CancelGeneration(generation="x"))],
        [inference_pb2.AttachCommand(unsubscribe=inference_pb2.Unsubscribe(subscription=1))] * 1001,
        [inference_pb2.AttachCommand(subscribe=inference_pb2.Subscribe(subscription=1, generation=new_generation_id()))]
        * 2,
    ],
)
async def test_a_fault_in_the_protocol_ends_the_stream_and_no_other(
    valkey: Redis, valkey_server: ValkeyServer, commands: list[inference_pb2.AttachCommand]
) -> None:
    engine = ScriptedEngine(answer=("x",))
    async with (
        running_adapter(valkey_server.url, engine) as adapter,
        attached(adapter) as faulty,
        attached(adapter) as other,
    ):
        number = await other.subscribe(new_generation_id(), wait_ms=60_000)
        await faulty.send(*commands)
        assert await code_of(faulty) == grpc.StatusCode.INVALID_ARGUMENT
        await other.all(await other.subscribe(await enqueue(valkey, request())))
        assert other.events[number] == []


async def test_an_id_that_is_none_ends_only_its_subscription(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("x",))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        (event,) = await stream.all(await stream.subscribe("nonsense", after=7))
        assert (reason(event), event.position, event.error.delivered_until) == ("invalid_argument", 8, 7)
        assert text(await stream.all(await stream.subscribe(await enqueue(valkey, request())))) == "x"


async def test_a_half_closed_stream_ends_with_its_last_subscription(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        number = await stream.subscribe(await enqueue(valkey, request()))
        await stream.call.done_writing()
        call = await engine.next_call()
        call.say("a")
        call.end()
        while await stream.read():
            pass
        assert text(stream.events[number]) == "a"
        assert await stream.call.code() == grpc.StatusCode.OK


async def test_silence_is_broken_by_signs_of_life(valkey_server: ValkeyServer) -> None:
    async with running_adapter(valkey_server.url, ScriptedEngine(), heartbeat_s=0.2) as adapter, attached(adapter) as s:
        await s.subscribe(new_generation_id())
        async with asyncio.timeout(20):
            assert await s.read()
            assert await s.read()
        assert s.batches == [0, 0]


async def test_a_reader_that_does_not_read_is_dropped_and_others_are_not(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine()
    async with (
        running_adapter(valkey_server.url, engine, reader_buffer_bytes=256 * 1024) as adapter,
        attached(adapter) as slow,
        attached(adapter) as quick,
    ):
        generation = await enqueue(valkey, request())
        await slow.subscribe(generation)
        number = await quick.subscribe(generation)
        call = await engine.next_call()
        piece = "x" * 16_384
        for count in range(1, 801):
            call.say(piece)
            if count % 8 == 0:
                await quick.until(number, 0)
                async with asyncio.timeout(20):
                    while sum(event.token.units for event in quick.events[number]) < count:
                        await quick.read()
        call.end()
        assert len(text(await quick.all(number))) == 800 * len(piece)
        assert await code_of(slow) == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_is_no_longer_kept_is_told_as_expired(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("x",))
    async with running_adapter(valkey_server.url, engine, memory_s=0.3) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        await stream.all(await stream.subscribe(generation))
        await asyncio.sleep(0.6)
        (event,) = await stream.all(await stream.subscribe(generation, after=3))
        assert reason(event) == "events_expired"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    rows = [{"hash": hash_key(name), "tenant": name} for name in ("acme", "other")]
    path.write_text(json.dumps({"keys": rows}))
    return path


def as_tenant(adapter: Adapter, tenant: str) -> Attached:
    return Attached(adapter.address, metadata=grpc.aio.Metadata(("authorization", f"Bearer {tenant}")))


async def test_a_tenant_can_neither_read_nor_cancel_what_is_anothers(
    valkey: Redis, valkey_server: ValkeyServer, key_file: Path
) -> None:
    engine = ScriptedEngine()
    shared = {"mesh_token": "secret", "api_keys_file": key_file}
    async with running_adapter(valkey_server.url, engine, shared=shared) as adapter:
        own, other = as_tenant(adapter, "acme"), as_tenant(adapter, "other")
        generation = await enqueue(valkey, request(tenant="acme"))
        number = await own.subscribe(generation)
        call = await engine.next_call()
        call.say("a")
        await own.until(number, 2)
        (event,) = await other.all(await other.subscribe(generation))
        assert reason(event) == "generation_not_found"
        await other.cancel(generation)
        unread = request("unread", tenant="acme")
        await other.cancel(unread.generation)
        await other.all(await other.subscribe("x"))
        assert not call.aborted
        await enqueue(valkey, unread)
        await engine.next_call(2)
        await own.cancel(generation)
        assert reason((await own.all(number))[-1]) == "cancelled"
        await own.close()
        await other.close()


async def test_a_direct_callers_priority_is_lowered_and_a_foreign_model_refused(
    valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    rows = {
        "acme": {"tier": "bronze", "keys": [hash_key("acme")]},
        "other": {"tier": "gold", "keys": [hash_key("other")], "allowed_models": ["another"]},
    }
    path = tmp_path / "tenants.yaml"
    path.write_text(json.dumps({"tenants": rows}))
    shared = {"mesh_token": "secret", "tenants_file": path}
    async with running_adapter(valkey_server.url, ScriptedEngine(answer=("a",)), shared=shared) as adapter:
        own, other = as_tenant(adapter, "acme"), as_tenant(adapter, "other")
        wanted = request()
        wanted.priority = 90
        # Nobody is gold by saying so.
        wanted.entitlement.CopyFrom(common_pb2.Entitlement(tier=common_pb2.TIER_GOLD, highest_priority=127))
        metadata = [("authorization", "Bearer acme")]
        events = await all_of(generate(own, wanted, metadata=metadata))
        assert events[0].accepted.HasField("lowered_priority")
        assert events[0].accepted.lowered_priority == 0
        refused = await refusal(generate(other, request("no"), metadata=[("authorization", "Bearer other")]))
        assert refused == "permission_denied"
        await own.close()
        await other.close()


async def test_a_direct_callers_token_names_its_session_and_load_shows_only_its_models(
    valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    (tmp_path / "secret").write_text(secret)
    path = tmp_path / "tenants.yaml"
    rows = {"acme": {"tier": "gold"}, "other": {"tier": "gold", "allowed_models": ["another"]}}
    rules = {"issuer": "me", "audience": "mesh", "secret_file": "secret", "session_claim": "sid"}
    path.write_text(json.dumps({"tenants": rows, "jwt": rules}))

    def token(tenant: str) -> str:
        claims = {"iss": "me", "aud": "mesh", "exp": time.time() + 600, "tenant": tenant, "sid": "s-1"}
        return jwt.encode(claims, secret, "HS256")

    shared = {"mesh_token": "secret", "tenants_file": path}
    async with running_adapter(valkey_server.url, ScriptedEngine(answer=("a",)), shared=shared) as adapter:
        own, other = as_tenant(adapter, token("acme")), as_tenant(adapter, token("other"))
        metadata = [("authorization", f"Bearer {token('acme')}")]
        events = await all_of(generate(own, request(), metadata=metadata))
        assert events[0].accepted.session == session_key.of_claim("s-1")
        events = await all_of(generate(own, request("named", session="mine"), metadata=metadata))
        assert events[0].accepted.session == "mine"
        loads = [
            await stream.stub.GetLoad(inference_pb2.GetLoadRequest(), metadata=metadata)
            for stream, metadata in (
                (own, metadata),
                (other, [("authorization", f"Bearer {token('other')}")]),
                (own, [("x-streamway-mesh-token", "secret")]),
            )
        ]
        assert [bool(load.models) for load in loads] == [True, False, True]
        assert [load.engine.address for load in loads[:2]] == ["", ""]
        assert loads[2].engine.address
        await own.close()
        await other.close()


async def test_a_direct_call_is_held_to_its_tenants_limits_and_gives_back_what_it_did_not_use(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    path = tmp_path / "tenants.yaml"
    row = {"tier": "gold", "keys": [hash_key("acme")], "concurrency": 1, "tokens_per_minute": 1000}
    path.write_text(json.dumps({"tenants": {"acme": row}}))
    engine = ScriptedEngine()
    shared = {"mesh_token": "secret", "tenants_file": path}
    async with running_adapter(valkey_server.url, engine, shared=shared) as adapter:
        own = as_tenant(adapter, "acme")
        metadata = [("authorization", "Bearer acme")]
        running = generate(own, request("one"), metadata=metadata)
        first = (await running.read()).events[0]
        assert first.accepted.route == "direct"
        assert await valkey.zcard(keys.quota_slots("acme")) == 1
        assert await refusal(generate(own, request("two"), metadata=metadata)) == "quota_exceeded"
        too_large = request("three")
        too_large.messages[0].content = "x" * 8000
        assert await refusal(generate(own, too_large, metadata=metadata)) == "request_too_large_for_quota"
        # The caller leaves: the slot is free, and the tokens that were not made are back.
        running.cancel()
        await eventually(lambda: valkey.zcard(keys.quota_slots("acme")), 0)
        level = (await valkey.hget(keys.quota("acme"), "tokens")).decode()
        assert float(level.split()[0]) > 900
        await own.close()
