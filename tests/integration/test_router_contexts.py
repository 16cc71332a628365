"""Conversations that the mesh keeps: routers with real workers on a simulated engine, and a real store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from services.cache.app import CacheApp
from services.cache.settings import CacheSettings
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.backends.simulated import SimulatedBackend
from services.inference_adapter.interfaces import EngineCall, EngineSink
from services.router.app import RouterApp
from services.router.core.context_table import Name
from services.router.io.context_store import digest_of
from services.router.settings import RouterSettings
from streamway.cachekey import canonical_form, exact_key
from streamway.config import SharedSettings
from streamway.errors import (
    ContextBusy,
    ContextNotFound,
    IdempotencyConflict,
    InvalidArgument,
    StoreUnavailable,
    StreamwayError,
    TooLarge,
    from_status,
)
from streamway.journal import ChoiceSoFar
from streamway.rpc import open_channel
from streamway.runtime.ids import new_generation_id
from streamway.simulation.settings import SimulationSettings
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.router_mesh import ConnectStream, Mesh, until
from tests.support.takeover_mesh import text_of
from tests.support.two_workers import worker
from tests.support.valkey_server import ValkeyServer

START, APPEND = common_pb2.CONTEXT_USE_START, common_pb2.CONTEXT_USE_APPEND
SYSTEM = ("system", "You answer in one sentence. " * 20)


class Engine(SimulatedBackend):
    """Remembers what it was asked."""

    def __init__(self, rate: float) -> None:
        settings = SimulationSettings(tokens_per_s=rate, answer_tokens=12, model="m")
        super().__init__(BackendOptions(kind="simulated", simulation=settings), "w0")
        self.asked: list[common_pb2.GenerationRequest] = []

    def call(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> EngineCall:
        self.asked.append(request)
        return super().call(request, sink, so_far)


@asynccontextmanager
async def contexts(
    url: str, *, routers: int = 1, rate: float = 2000.0, **settings: Any
) -> AsyncIterator[tuple[list[Mesh], Engine]]:
    """Routers named r0, r1 … over one worker."""
    engine, common = Engine(rate), SharedSettings(valkey_url=url)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(worker(url, "w0", engine))
        meshes = []
        for number in range(routers):
            patient = {
                "cache_budget_ms": 1000,
                "session_recall_ms": 100,
                "dispatch_timeout_s": 20,
                "context_wait_s": 20,
            }
            app = RouterApp(RouterSettings(port=0, id=f"r{number}", **{"poll_s": 0.1, **patient, **settings}), common)
            await app.start()
            stack.push_async_callback(app.close)
            channel = open_channel(app.address, common)
            stack.push_async_callback(channel.close)
            meshes.append(Mesh(app, [], channel, common))
        yield meshes, engine


def turn(
    use: common_pb2.ContextUse.ValueType, *messages: tuple[str, str], **fields: Any
) -> common_pb2.GenerationRequest:
    """One turn of the conversation "chat"."""
    said = messages or (("user", "and then?"),)
    return common_pb2.GenerationRequest(
        generation=fields.pop("generation", new_generation_id()),
        model="m",
        messages=[common_pb2.Message(role=role, content=content) for role, content in said],
        context=common_pb2.KeptContext(id=fields.pop("id", "chat"), use=use),
        tenant=fields.pop("tenant", "acme"),
        **fields,
    )


def body_turn(
    use: common_pb2.ContextUse.ValueType, *messages: dict[str, Any], **fields: Any
) -> common_pb2.GenerationRequest:
    """The same as an OpenAI body."""
    request = turn(use)
    del request.messages[:]
    request.openai_body = json.dumps({"model": "m", "messages": messages, **fields}).encode()
    return request


async def run(stream: ConnectStream, request: common_pb2.GenerationRequest) -> str:
    """The answer. Raises what the generation ends with where that is no good end."""
    generation = await stream.open(request, location=False)
    await until(lambda: {"finished", "error"} & set(stream.kinds(generation)))
    last = stream.of(generation)[-1]
    if last.HasField("error"):
        raise from_status(last.error.status)
    return text_of(stream.of(generation))


def heard(request: common_pb2.GenerationRequest) -> list[tuple[str, str]]:
    """The conversation as the engine got it."""
    return [(message.role, message.content) for message in request.messages]


async def until_kept(valkey: Redis, key: str) -> None:
    """Waits until the latest turn is part of a context."""
    async with asyncio.timeout(20):
        while not await valkey.hget(key, "last") or await valkey.hget(key, "open"):
            await asyncio.sleep(0.01)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that the test may stop."""
    server = ValkeyServer(tmp_path)
    yield server
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGCONT)
    server.stop()


async def test_a_client_sends_only_its_new_turn_and_the_engine_gets_the_whole_conversation(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url) as ((made,), engine):
        stream = made.connect()
        first = await run(stream, turn(START, SYSTEM, ("user", "one")))
        second = await run(stream, turn(APPEND, ("user", "two")))
        third = await run(stream, turn(APPEND, ("user", "three")))
        said = [
            SYSTEM,
            ("user", "one"),
            ("assistant", first),
            ("user", "two"),
            ("assistant", second),
            ("user", "three"),
        ]
        assert min(len(first), len(second), len(third)) > 0
        assert heard(engine.asked[-1]) == said
        assert not engine.asked[-1].HasField("context")
        await stream.close()


async def test_cache_key_session_and_quota_are_those_of_the_whole_conversation(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url) as ((made,), engine):
        stream = made.connect()
        for typed in (True, False):
            if typed:
                first = await run(stream, turn(START, SYSTEM, ("user", "one")))
                await run(stream, turn(APPEND, ("user", "two")))
                whole = turn(START, SYSTEM, ("user", "one"), ("assistant", first), ("user", "two"), session="chat")
            else:
                opening = [{"role": "system", "content": SYSTEM[1]}, {"role": "user", "content": "one"}]
                first = await run(stream, body_turn(START, *opening))
                await run(stream, body_turn(APPEND, {"role": "user", "content": [{"type": "text", "text": "two"}]}))
                history = [*opening, {"role": "assistant", "content": first}]
                whole = body_turn(START, *history, {"role": "user", "content": [{"type": "text", "text": "two"}]})
                whole.session = "chat"
            whole.ClearField("context")
            kept = engine.asked[-1]
            await run(stream, whole)
            sent = engine.asked[-1]
            keys_of = [exact_key("acme", "m", canonical_form(request)) for request in (kept, sent)]
            assert keys_of[0] == keys_of[1]
            assert (kept.session, kept.load_tokens > 0) == (sent.session, True)
        await stream.close()


async def test_a_turn_sent_again_under_its_idempotency_key_leads_to_its_answer(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url) as ((made,), engine):
        stream = made.connect()
        await run(stream, turn(START, ("user", "one"), idempotency_key="k1"))
        await run(stream, turn(START, ("user", "one"), idempotency_key="k1"))
        assert len(engine.asked) == 1
        with pytest.raises(IdempotencyConflict):
            await run(stream, turn(APPEND, ("user", "two"), idempotency_key="k1"))
        await run(stream, turn(APPEND, ("user", "two")))
        assert [role for role, _ in heard(engine.asked[-1])] == ["user", "assistant", "user"]
        await stream.close()


async def test_an_answer_from_the_cache_is_a_turn_like_any_other(valkey: Redis, valkey_server: ValkeyServer) -> None:
    cache = CacheApp(CacheSettings(port=0, operations_port=0), SharedSettings(valkey_url=valkey_server.url))
    await cache.start()
    try:
        async with contexts(valkey_server.url, caches=(cache.address,)) as ((made,), engine):
            await until(lambda: made.app.caches_connected == 1)
            stream = made.connect()
            cold = common_pb2.Sampling(temperature=0)
            first = await run(stream, turn(START, ("user", "one"), sampling=cold))
            async with asyncio.timeout(20):
                while True:  # the cache is off the path: it may take a moment
                    hit = turn(START, ("user", "one"), sampling=cold, id="another")
                    assert await run(stream, hit) == first
                    if stream.of(hit.generation)[0].accepted.cache == "exact":
                        break
            await run(stream, turn(APPEND, ("user", "two"), id="another"))
            assert heard(engine.asked[-1]) == [("user", "one"), ("assistant", first), ("user", "two")]
            await stream.close()
    finally:
        await cache.close()


async def test_nothing_kept_is_a_clear_refusal_and_another_tenants_context_is_nothing(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url) as ((made,), engine):
        stream = made.connect()
        with pytest.raises(ContextNotFound, match="send the whole conversation as its start"):
            await run(stream, turn(APPEND))
        await run(stream, turn(START))
        with pytest.raises(ContextNotFound):
            await run(stream, turn(APPEND, tenant="other"))
        with pytest.raises(ContextNotFound):
            await run(stream, turn(APPEND, id="chat2"))
        await run(stream, turn(APPEND))
        assert len(engine.asked) == 2
        await stream.close()


async def test_what_cannot_be_kept_is_refused_before_anything_runs(valkey: Redis, valkey_server: ValkeyServer) -> None:
    many = turn(START)
    many.sampling.n = 2
    unsaid = turn(common_pb2.CONTEXT_USE_UNSPECIFIED)
    refused = [
        (turn(START, durability=common_pb2.DURABILITY_OFF), InvalidArgument, "durability"),
        (many, InvalidArgument, "n"),
        (unsaid, InvalidArgument, "context.use"),
        (turn(START, id="x" * 65), InvalidArgument, "context.id"),
        (turn(START, ("user", "x" * 3000)), TooLarge, None),
    ]
    async with contexts(valkey_server.url, context_limit_bytes=2048) as ((made,), engine):
        stream = made.connect()
        for request, kind, field in refused:
            with pytest.raises(StreamwayError) as wrong:
                await run(stream, request)
            assert isinstance(wrong.value, kind)
            assert wrong.value.param == field
        await run(stream, turn(START, ("user", "x" * 1500)))
        with pytest.raises(TooLarge, match="CONTEXT_LIMIT_BYTES"):
            await run(stream, turn(APPEND, ("user", "x" * 1000)))
        await run(stream, turn(APPEND, ("user", "y")))
        assert len(engine.asked) == 2
        await stream.close()


async def test_a_turn_that_failed_or_was_cancelled_was_never_there(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with contexts(valkey_server.url, rate=20.0) as ((made,), engine):
        stream = made.connect()
        first = await run(stream, turn(START, ("user", "one")))
        generation = await stream.open(turn(APPEND, ("user", "stop")), location=False)
        await until(lambda: "token" in stream.kinds(generation))
        await stream.cancel(generation)
        await until(lambda: "error" in stream.kinds(generation))
        faulty = body_turn(APPEND, {"role": "user", "content": "fail"}, streamway_faults={"status": 400})
        with pytest.raises(StreamwayError):
            await run(stream, faulty)
        await run(stream, turn(APPEND, ("user", "two")))
        assert heard(engine.asked[-1]) == [("user", "one"), ("assistant", first), ("user", "two")]
        await stream.close()


async def test_a_second_turn_while_one_runs_waits_for_its_end_or_is_told_that_it_runs(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url, rate=20.0, routers=2, context_wait_s=20) as (meshes, engine):
        streams = [made.connect() for made in meshes]
        first = await streams[0].open(turn(START, ("user", "one")), location=False)
        await until(lambda: "token" in streams[0].kinds(first))
        second = await run(streams[1], turn(APPEND, ("user", "two")))
        assert second
        assert heard(engine.asked[-1]) == [
            ("user", "one"),
            ("assistant", text_of(streams[0].of(first))),
            ("user", "two"),
        ]
        for stream in streams:
            await stream.close()
    await valkey.flushdb()
    async with contexts(valkey_server.url, rate=20.0, context_wait_s=0) as ((made,), engine):
        stream = made.connect()
        running = await stream.open(turn(START, ("user", "one")), location=False)
        await until(lambda: "token" in stream.kinds(running))
        with pytest.raises(ContextBusy) as busy:
            await run(stream, turn(APPEND))
        assert busy.value.metadata["generation"] == running
        assert busy.value.retry_after_s
        await stream.close()


async def test_any_router_goes_on_also_when_the_one_that_began_the_turn_is_gone(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url, rate=40.0, routers=3) as (meshes, engine):
        streams = [made.connect() for made in meshes]
        first = await run(streams[0], turn(START, SYSTEM, ("user", "one")))
        second = await run(streams[1], turn(APPEND, ("user", "two")))
        # Read at the worker, as edges do: nobody's reading ends with the router.
        request = turn(APPEND, ("user", "three"), on_disconnect=common_pb2.ON_DISCONNECT_CONTINUE)
        await streams[0].open(request, location=True)
        await until(lambda: len(engine.asked) == 3)
        await meshes[0].app._scope.close()
        await streams[2].open(turn(APPEND, ("user", "four")), location=True)
        await until(lambda: len(engine.asked) == 4)
        said = heard(engine.asked[-1])
        assert said[:5] == [SYSTEM, ("user", "one"), ("assistant", first), ("user", "two"), ("assistant", second)]
        assert [role for role, _ in said[5:]] == ["user", "assistant", "user"]
        assert said[5][1] == "three"
        assert len(said[6][1]) > 10
        for stream in streams:
            await stream.close()


async def test_a_turn_whose_router_is_gone_is_added_by_another_that_looks_after_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url, rate=200.0, routers=2) as (meshes, engine):
        stream = meshes[0].connect()
        request = turn(START, ("user", "one"), on_disconnect=common_pb2.ON_DISCONNECT_CONTINUE)
        await stream.open(request, location=True)
        await until(lambda: len(engine.asked) == 1)
        await meshes[0].app._scope.close()
        key = keys.context("acme", digest_of("chat"))
        member = f"acme/{digest_of('chat')}"
        assert await valkey.zscore(keys.contexts_running(), member) is not None
        other = meshes[1].app._made().contexts
        async with asyncio.timeout(20):
            while not await valkey.hget(key, "last"):
                await valkey.zadd(keys.contexts_running(), {member: 1}, xx=True)
                await other.sweep()
        assert (await valkey.hget(key, "last")).decode() == request.generation
        assert await valkey.zscore(keys.contexts_running(), member) is None
        await stream.close()


async def test_a_context_outlives_every_router_and_what_is_in_memory_is_never_older_than_the_store(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url) as ((made,), engine):
        stream = made.connect()
        await run(stream, turn(START, ("user", "one")))
        await stream.close()
    async with contexts(valkey_server.url, routers=2) as (meshes, engine):
        streams = [made.connect() for made in meshes]
        for number in range(4):
            await run(streams[number % 2], turn(APPEND, ("user", f"turn {number}")))
        assert [content for role, content in heard(engine.asked[-1]) if role == "user"] == [
            *("one", "turn 0", "turn 1", "turn 2", "turn 3")
        ]
        # A new start, elsewhere, is what the first router goes on with too.
        await run(streams[1], turn(START, ("user", "anew")))
        await run(streams[0], turn(APPEND, ("user", "next")))
        assert [content for role, content in heard(engine.asked[-1]) if role == "user"] == ["anew", "next"]
        for stream in streams:
            await stream.close()


async def test_a_damaged_value_is_dropped_and_said(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with contexts(valkey_server.url) as ((made,), _engine):
        stream = made.connect()
        await run(stream, turn(START, ("user", "one" * 200)))
        text, key = keys.context_text("acme", digest_of("chat")), keys.context("acme", digest_of("chat"))
        await until_kept(valkey, key)
        (segment,) = await valkey.lrange(text, 0, -1)
        await valkey.lset(text, 0, segment[:-1] + bytes([segment[-1] ^ 1]))
        # As another router would read it.
        made.app._made().contexts._table.drop(Name("acme", digest_of("chat")))
        with pytest.raises(ContextNotFound, match="damaged"):
            await run(stream, turn(APPEND))
        assert not await valkey.exists(text, key)
        with pytest.raises(ContextNotFound, match="nothing is kept"):
            await run(stream, turn(APPEND))
        await stream.close()


async def test_an_answer_that_is_kept_no_more_ends_the_context_and_is_never_left_out(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url, routers=2) as (meshes, _engine):
        stream = meshes[1].connect()
        await run(stream, turn(START, ("user", "one")))
        key = keys.context("acme", digest_of("chat"))
        await until_kept(valkey, key)
        # A turn whose router died, and whose channel has expired meanwhile.
        gone = new_generation_id()
        await valkey.hset(key, mapping={"open": gone, "use": "append", "new": b"", "at": 1})
        await valkey.hset(keys.generation(gone), mapping={"state": "finished", "tenant": "acme", "durability": "2"})
        with pytest.raises(ContextNotFound):
            await run(stream, turn(APPEND))
        assert not await valkey.exists(key)
        await stream.close()


async def test_many_who_note_the_same_end_add_it_once_and_lose_nothing(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url) as ((made,), engine):
        stream, kept, name = made.connect(), made.app._made().contexts, Name("acme", digest_of("chat"))
        await run(stream, turn(START, ("user", "turn 0")))

        async def note(late_s: float) -> None:
            await asyncio.sleep(late_s)
            await kept._ends.settle(name)

        for number in range(1, 6):
            await run(stream, turn(APPEND, ("user", f"turn {number}")))
            async with asyncio.TaskGroup() as group:
                for late in range(40):
                    group.create_task(note(late / 5000))
        await run(stream, turn(APPEND, ("user", "turn 6")))
        assert [said for role, said in heard(engine.asked[-1]) if role == "user"] == [f"turn {n}" for n in range(7)]
        await stream.close()


async def test_a_deleted_context_is_gone_and_a_running_turn_does_not_bring_it_back(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url, rate=20.0) as ((made,), _engine):
        stream = made.connect()
        await run(stream, turn(START, ("user", "one")))
        running = await stream.open(turn(APPEND, ("user", "two")), location=False)
        await until(lambda: "token" in stream.kinds(running))
        request = router_pb2.ForgetContextRequest(id="chat", tenant="other")
        assert not (await made.stub.ForgetContext(request, metadata=made.metadata)).found
        request.tenant = "acme"
        assert (await made.stub.ForgetContext(request, metadata=made.metadata)).found
        await until(lambda: "finished" in stream.kinds(running))
        with pytest.raises(ContextNotFound):
            await run(stream, turn(APPEND))
        assert not (await made.stub.ForgetContext(request, metadata=made.metadata)).found
        with pytest.raises(grpc.aio.AioRpcError):
            await made.stub.ForgetContext(router_pb2.ForgetContextRequest(), metadata=made.metadata)
        await stream.close()


async def test_a_tenants_longest_unused_contexts_beyond_its_number_are_deleted(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url, contexts_per_tenant=2) as ((made,), _engine):
        stream = made.connect()
        for number in range(3):
            await run(stream, turn(START, id=f"c{number}"))
            await until_kept(valkey, keys.context("acme", digest_of(f"c{number}")))
        await run(stream, turn(START, id="c0", tenant="other"))
        await asyncio.sleep(0)
        with pytest.raises(ContextNotFound):
            await run(stream, turn(APPEND, id="c0"))
        for number in (1, 2):
            await run(stream, turn(APPEND, id=f"c{number}"))
        await run(stream, turn(APPEND, id="c0", tenant="other"))
        await stream.close()


async def test_tools_and_parts_come_back_as_they_went_and_typed_turns_refuse_to_flatten_them(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
    question = {
        "role": "user",
        "content": [{"type": "text", "text": "time?"}, {"type": "image_url", "image_url": {"url": "x"}}],
    }
    async with contexts(valkey_server.url) as ((made,), engine):
        stream = made.connect()
        asked = body_turn(
            START, question, tools=[tool], tool_choice={"type": "function", "function": {"name": "clock"}}
        )
        await run(stream, asked)
        result = {"role": "tool", "tool_call_id": "call_1", "content": "noon", "x_own": {"kept": [1, 2.5, None]}}
        await run(stream, body_turn(APPEND, result, tools=[tool]))
        messages = json.loads(engine.asked[-1].openai_body)["messages"]
        assert [messages[0], messages[2]] == [question, result]
        assert messages[1]["tool_calls"][0]["function"]["name"] == "clock"
        assert [message.role for message in engine.asked[-1].messages] == ["user", "assistant", "tool"]
        with pytest.raises(InvalidArgument, match="OpenAI chat completion"):
            await run(stream, turn(APPEND))
        await stream.close()


async def test_without_the_store_turns_are_refused_and_nothing_is_answered_without_its_context(
    own_server: ValkeyServer,
) -> None:
    async with contexts(own_server.url, dispatch_timeout_s=0.5) as ((made,), engine):
        stream = made.connect()
        await run(stream, turn(START))
        async with Redis.from_url(own_server.url) as valkey:
            await until_kept(valkey, keys.context("acme", digest_of("chat")))
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            for use in (START, APPEND):
                with pytest.raises(StoreUnavailable):
                    await run(stream, turn(use))
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        assert len(engine.asked) == 1
        await until(lambda: not made.app._made().contexts._store._journal.away)
        await run(stream, turn(APPEND))
        await stream.close()
