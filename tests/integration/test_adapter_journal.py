"""What a worker promises about response channels: real Valkey, real gRPC, a scripted engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.io import journaled
from services.inference_adapter.settings import AdapterSettings
from streamway.attach.client import SILENCE_S
from streamway.errors import EngineFailed, EngineRejected, from_rpc_error, from_status
from streamway.journal import Kind
from streamway.v1 import common_pb2, inference_pb2
from streamway.valkey import keys
from tests.support.adapter_world import (
    WORKER,
    Attached,
    assert_tile,
    attached,
    channel_of,
    enqueue,
    eventually,
    kinds,
    reason,
    request,
    running_adapter,
    state_of,
    text,
    unfinished,
)
from tests.support.scripted_engine import ScriptedCall, ScriptedEngine
from tests.support.two_workers import RELAXED, STRICT, ended, events_in
from tests.support.valkey_server import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient")


def durable(prompt: str = "hello", **fields: Any) -> common_pb2.GenerationRequest:
    return request(prompt, **{"durability": RELAXED, **fields})


@pytest.mark.parametrize("durability", [RELAXED, STRICT])
async def test_readers_and_the_channel_get_the_same_events(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, durable(durability=durability))
        number = await stream.subscribe(generation, after=1)
        # Told before the engine says anything.
        (started,) = await stream.until(number, 1)
        assert (started.started.worker, started.started.line) == (WORKER, f"0:1,{started.epoch}:2")
        call = await engine.next_call()
        for word in ("one ", "two ", "three "):
            call.say(word)
            await asyncio.sleep(0.03)
        call.end()
        events = await stream.all(number)
        entries = await channel_of(valkey, generation)
        kept = events_in(entries)
        assert [entry.kind for entry in entries] == ["accepted", "begin", "tokens", "tokens", "tokens", "end"]
        assert text(events) == text(kept) == "one two three "
        assert [(e.position, e.epoch) for e in events] == [(e.position, e.epoch) for e in kept[1:]]
        assert_tile(events)
        assert not any(event.not_durable for event in events)
        await eventually(lambda: unfinished(valkey), 0)
        await eventually(lambda: state_of(valkey, generation), "finished")
        assert 250_000 < await valkey.pttl(keys.response(generation)) <= 300_000
        assert adapter.window.running == 0


async def test_a_refused_request_and_a_cancel_end_in_the_channel_too(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        refused, queued = await enqueue(valkey, durable("refused")), await enqueue(valkey, durable("queued"))
        numbers = [await stream.subscribe(refused, after=1), await stream.subscribe(queued, after=1)]
        call = await engine.next_call()
        await eventually(lambda: adapter.window.waiting, 1)
        await stream.cancel(queued)
        events = await stream.all(numbers[1])
        assert kinds(events) == ["started", "error"]
        assert (reason(events[-1]), events[-1].error.delivered_until) == ("cancelled", 2)
        call.sink.failed(EngineRejected("no such tool", 400))
        assert reason((await stream.all(numbers[0]))[-1]) == "engine_rejected"
        await eventually(lambda: state_of(valkey, queued), "cancelled")
        await eventually(lambda: state_of(valkey, refused), "failed")
        await eventually(lambda: unfinished(valkey), 0)
        for generation in (refused, queued):
            assert ended(await channel_of(valkey, generation))
        assert len(engine.calls) == 1


async def test_a_cancel_that_comes_before_the_task_ends_in_the_channel(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("x",))
    wanted = durable()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        await stream.cancel(wanted.generation)
        await asyncio.sleep(0.05)
        await enqueue(valkey, wanted)
        await eventually(lambda: unfinished(valkey), 0)
        entries = await channel_of(valkey, wanted.generation)
        assert ended(entries)
        assert reason(events_in(entries)[-1]) == "cancelled"
        assert engine.calls == []
        assert adapter.window.running == adapter.window.waiting == 0


async def test_an_engine_that_breaks_with_nobody_to_go_on_is_told(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, durable())
        number = await stream.subscribe(generation, after=1)
        call = await engine.next_call()
        call.say("half")
        call.sink.failed(EngineFailed("w", "it broke"))
        events = await stream.all(number)
        assert (reason(events[-1]), events[-1].error.delivered_until) == ("engine_failed", 3)
        assert text(events) == "half"
        assert ended(await channel_of(valkey, generation))


async def test_a_task_whose_channel_is_gone_is_not_run(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("x",))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        wanted = durable()
        number = await stream.subscribe(wanted.generation, after=1)
        await valkey.delete(keys.response(await enqueue_without_channel(valkey, wanted)))
        (event,) = await stream.all(number)
        assert (reason(event), event.epoch) == ("events_expired", 0)
        await eventually(lambda: unfinished(valkey), 0)
        assert engine.calls == []
        await eventually(lambda: adapter.window.running, 0)


async def enqueue_without_channel(valkey: Redis, wanted: common_pb2.GenerationRequest) -> str:
    plain = common_pb2.GenerationRequest()
    plain.CopyFrom(wanted)
    plain.durability = common_pb2.DURABILITY_OFF
    generation = await enqueue(valkey, plain, worker="elsewhere")
    await valkey.hset(keys.generation(generation), "request", wanted.SerializeToString())
    await valkey.xadd(keys.lane(WORKER, "gold"), {"generation": generation, "attempt": 1, "ref": "r"})
    return generation


async def test_a_channel_that_expires_under_a_running_call_stops_it(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, durable())
        number = await stream.subscribe(generation, after=1)
        call = await engine.next_call()
        call.say("a")
        await stream.until(number, 2)
        await valkey.delete(keys.response(generation))
        call.say("b")
        events = await stream.all(number)
        assert reason(events[-1]) == "events_expired"
        assert text(events) == "a"
        assert call.aborted
        await eventually(lambda: unfinished(valkey), 0)
        # It never comes back half.
        assert await valkey.exists(keys.response(generation)) == 0
        await eventually(lambda: adapter.window.running, 0)


async def test_a_late_reader_is_served_from_any_place_on_the_line_and_from_no_other(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, durable())
        call = await engine.next_call()
        for word in "abc":
            call.say(word)
            await asyncio.sleep(0.05)
        whole = await stream.until(await stream.subscribe(generation), 5)
        assert kinds(whole) == ["accepted", "started", "token", "token", "token"]
        epoch = whole[-1].epoch
        tail = await stream.subscribe(generation, after=4, after_epoch=epoch)
        (last,) = await stream.until(tail, 1)
        assert last.token.text == "c"
        for after, after_epoch in ((4, epoch + 1), (4, 0), (1, epoch), (50, epoch)):
            (event,) = await stream.all(await stream.subscribe(generation, after=after, after_epoch=after_epoch))
            assert (reason(event), event.epoch) == ("events_expired", 0), (after, after_epoch)
        call.end()
        assert kinds(await stream.all(tail)) == ["token", "token", "finished"]


async def test_a_reader_with_another_workers_cursor_waits_for_the_task_and_is_judged_then(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        await enqueue(valkey, durable("first"))
        call = await engine.next_call()
        generation = await enqueue(valkey, durable("second"))
        await eventually(lambda: adapter.window.waiting, 1)
        good = await stream.subscribe(generation, after=1)
        bad = await stream.subscribe(generation, after=17, after_epoch=9 << 20)
        await asyncio.sleep(0.1)
        assert stream.events[bad] == []
        call.end()
        assert reason((await stream.all(bad))[-1]) == "events_expired"
        assert kinds(await stream.until(good, 1)) == ["started"]


@pytest.mark.parametrize(("on_disconnect", "grace_s"), [("ON_DISCONNECT_GRACE", 1.2), ("ON_DISCONNECT_CANCEL", 0.8)])
async def test_a4_without_a_reader_a_generation_goes_on_for_its_grace(
    valkey: Redis, valkey_server: ValkeyServer, on_disconnect: str, grace_s: float
) -> None:
    engine = ScriptedEngine()
    async with (
        running_adapter(valkey_server.url, engine, resume_grace_s=1.2, orphan_grace_s=0.8) as adapter,
        attached(adapter) as stream,
    ):
        generation = await enqueue(valkey, durable(on_disconnect=on_disconnect))
        number = await stream.subscribe(generation, after=1)
        call = await engine.next_call()
        call.say("a")
        before = await stream.until(number, 2)
        await stream.unsubscribe(number)
        # A reader that comes back stops the timer.
        await asyncio.sleep(grace_s * 0.3)
        back = await stream.subscribe(generation, after=3, after_epoch=before[-1].epoch)
        await asyncio.sleep(grace_s * 0.9)
        assert not call.aborted
        await stream.unsubscribe(back)
        left = time.monotonic()
        await eventually(lambda: call.aborted, True)
        assert time.monotonic() - left >= grace_s - 0.2
        await eventually(lambda: state_of(valkey, generation), "cancelled")
        assert reason(events_in(await channel_of(valkey, generation))[-1]) == "cancelled"


async def test_what_nobody_has_to_read_goes_on_to_its_end_or_its_deadline(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine, resume_grace_s=0.2, orphan_grace_s=0.1):
        generation = await enqueue(valkey, durable(on_disconnect="ON_DISCONNECT_CONTINUE"))
        call = await engine.next_call()
        call.say("a")
        await asyncio.sleep(1.0)
        assert not call.aborted
        call.say("b")
        call.end()
        await eventually(lambda: state_of(valkey, generation), "finished")
        assert text(events_in(await channel_of(valkey, generation))) == "ab"
        until_ms = int((time.time() + 1.0) * 1000)
        late = await enqueue(valkey, durable(on_disconnect="ON_DISCONNECT_CONTINUE", deadline_unix_ms=until_ms))
        await eventually(lambda: state_of(valkey, late), "failed")
        assert reason(events_in(await channel_of(valkey, late))[-1]) == "deadline_exceeded"
        assert time.time() * 1000 >= until_ms


async def test_without_a_channel_nobody_could_read_it_later_and_the_grace_ends_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine, resume_grace_s=0.3, orphan_grace_s=0.1):
        wanted = durable(on_disconnect="ON_DISCONNECT_CONTINUE")
        wanted.durability = common_pb2.DURABILITY_OFF
        await enqueue(valkey, wanted)
        call = await engine.next_call()
        await eventually(lambda: call.aborted, True)


async def test_a_stream_with_subscriptions_gets_a_sign_of_life_and_one_without_does_not(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine()
    async with (
        running_adapter(valkey_server.url, engine, attach_heartbeat_s=0.2) as adapter,
        attached(adapter) as stream,
        attached(adapter) as idle,
    ):
        await stream.subscribe(await enqueue(valkey, durable()))
        await idle.cancel("0" * 8 + "-0000-7000-8000-" + "0" * 12)
        reading = asyncio.get_running_loop().create_task(idle.read())
        await asyncio.sleep(1.0)
        assert not reading.done()
        reading.cancel()
        while 0 not in stream.batches:
            assert await stream.read()
    assert AdapterSettings().attach_heartbeat_s * 3 <= SILENCE_S


async def test_an_inline_task_runs_without_the_store_and_only_for_the_mesh(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("in", "line"))
    wanted = durable()
    task = inference_pb2.AttachCommand(
        inline_task=inference_pb2.InlineTask(request=wanted, created_ms=int(time.time() * 1000))
    )
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        await stream.send(task)
        await stream.send(task)  # a router that was not sure says it again
        events = await stream.all(await stream.subscribe(wanted.generation, after=1))
        assert text(events) == "inline"
        assert_tile(events)
        assert len(engine.calls) == 1
        assert await valkey.exists(keys.response(wanted.generation)) == 0
    keyed = {"mesh_token": "secret-mesh-token-1234"}
    async with running_adapter(valkey_server.url, engine, shared=keyed) as adapter:
        stranger = Attached(adapter.address)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stranger.send(task)
            await stranger.read()
        assert from_rpc_error(refused.value).name == "unauthenticated"
        await stranger.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that the test may stop."""
    server = ValkeyServer(tmp_path)
    yield server
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGCONT)
    server.stop()


@contextlib.asynccontextmanager
async def running(
    server: ValkeyServer, engine: ScriptedEngine, **settings: Any
) -> AsyncIterator[tuple[Adapter, Attached, Redis]]:
    valkey = Redis.from_url(server.url)
    async with running_adapter(server.url, engine, **settings) as adapter, attached(adapter) as stream:
        yield adapter, stream, valkey
    await valkey.aclose()


async def started(
    stream: Attached, valkey: Redis, engine: ScriptedEngine, durability: Any
) -> tuple[str, int, ScriptedCall]:
    """A generation with its first word out."""
    generation = await enqueue(valkey, durable(durability=durability))
    number = await stream.subscribe(generation, after=1)
    call = await engine.next_call()
    call.say("one ")
    await stream.until(number, 2)
    return generation, number, call


async def test_relaxed_goes_on_without_a_silent_store_says_so_and_logs_first_again_afterwards(
    own_server: ValkeyServer,
) -> None:
    engine = ScriptedEngine()
    async with running(own_server, engine) as (_, stream, valkey):
        generation, number, call = await started(stream, valkey, engine, RELAXED)
        os.kill(own_server.pid, signal.SIGSTOP)
        call.say("two ")
        begun = time.monotonic()
        events = await stream.until(number, 3)
        assert time.monotonic() - begun >= 0.4
        call.say("three ")
        events = await stream.until(number, 4)
        assert [event.not_durable for event in events] == [False, False, True, True]
        os.kill(own_server.pid, signal.SIGCONT)
        await eventually(lambda: has(valkey, generation, b"three "), True)
        await asyncio.sleep(0.1)
        call.say("four")
        call.end()
        events = await stream.all(number)
        assert [event.not_durable for event in events[4:]] == [False] * len(events[4:])
        assert_tile(events)
        assert text(events) == text(events_in(await channel_of(valkey, generation))) == "one two three four"


async def test_f5_what_waits_for_a_silent_store_is_bounded(
    own_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journaled, "_MOST_UNCONFIRMED_BYTES", 20_000)
    engine = ScriptedEngine()
    async with running(own_server, engine) as (_, stream, valkey):
        _, number, call = await started(stream, valkey, engine, RELAXED)
        os.kill(own_server.pid, signal.SIGSTOP)
        call.say("x" * 5_000)
        await stream.until(number, 3)
        assert not call.aborted
        call.say("y" * 20_000)
        events = await stream.all(number)
        assert (reason(events[-1]), events[-1].epoch) == ("store_unavailable", 0)
        assert call.aborted
        os.kill(own_server.pid, signal.SIGCONT)
        heir = await engine.next_call(2)
        heir.end()


async def test_strict_waits_for_a_silent_store(own_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running(own_server, engine) as (_, stream, valkey):
        generation, number, call = await started(stream, valkey, engine, STRICT)
        os.kill(own_server.pid, signal.SIGSTOP)
        call.say("two ", "three")
        call.end()
        with pytest.raises(TimeoutError):
            await stream.until(number, 3, within_s=0.6)
        os.kill(own_server.pid, signal.SIGCONT)
        # The cancelled read has ended that stream; another one goes on.
        again = Attached(stream.address)
        events = await again.all(await again.subscribe(generation))
        assert text(events) == "one two three"
        assert not any(event.not_durable for event in events)
        await again.close()
        await eventually(lambda: state_of(valkey, generation), "finished")


async def test_strict_waits_only_so_long_and_ends_resumably(own_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running(own_server, engine, strict_pause_s=1.0) as (_, stream, valkey):
        generation, number, call = await started(stream, valkey, engine, STRICT)
        os.kill(own_server.pid, signal.SIGSTOP)
        call.say("two")
        events = await stream.all(number)
        assert (reason(events[-1]), events[-1].epoch) == ("store_unavailable", 0)
        assert "resume" in from_status(events[-1].error.status).message
        assert events[-1].error.delivered_until == 3
        assert call.aborted
        os.kill(own_server.pid, signal.SIGCONT)
        # It goes on where the channel ends: here the same worker takes it again, there being no other.
        heir = await engine.next_call(2)
        assert heir.so_far is not None
        assert heir.so_far.text.startswith("one ")
        heir.say("and on")
        heir.end()
        await eventually(lambda: state_of(valkey, generation), "finished")
        entries = await channel_of(valkey, generation)
        assert_tile(events_in(entries), first=1)


async def test_a_relaxed_stream_outlives_a_store_that_comes_back_empty(own_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running(own_server, engine) as (adapter, stream, valkey):
        generation, number, call = await started(stream, valkey, engine, RELAXED)
        own_server.restart()
        call.say("two ")
        await stream.until(number, 3)
        await eventually(
            lambda: valkey.hget(keys.generation(generation), "durability"), b"%d" % common_pb2.DURABILITY_OFF
        )
        call.say("three")
        call.end()
        events = await stream.all(number)
        assert kinds(events)[-1] == "finished"
        assert text(events) == "one two three"
        assert_tile(events, first=2)
        assert events[-1].not_durable
        await eventually(lambda: state_of(valkey, generation), "finished")
        assert not await channel_of(valkey, generation), "a channel must not come back half"
        assert text(await stream.all(await stream.subscribe(generation, after=1))) == "one two three"
        await eventually(lambda: adapter.window.running, 0)


async def test_a_relaxed_stream_whose_end_the_store_lost_has_it_nevertheless(own_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running(own_server, engine) as (adapter, stream, valkey):
        generation, number, call = await started(stream, valkey, engine, RELAXED)
        own_server.restart()
        call.end()
        events = await stream.all(number)
        assert (kinds(events)[-1], text(events)) == ("finished", "one ")
        await eventually(lambda: state_of(valkey, generation), "finished")
        await eventually(lambda: adapter.window.running, 0)


async def test_a_strict_stream_ends_with_the_channel_that_the_store_lost(own_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running(own_server, engine) as (adapter, stream, valkey):
        _, number, call = await started(stream, valkey, engine, STRICT)
        own_server.restart()
        call.say("two")
        events = await stream.all(number)
        assert reason(events[-1]) == "events_expired"
        assert call.aborted
        number = await stream.subscribe(await enqueue(valkey, durable()), after=1)
        (await engine.next_call(2)).end()
        assert kinds(await stream.all(number))[-1] == "finished"
        await eventually(lambda: adapter.window.running, 0)


async def has(valkey: Redis, generation: str, payload: bytes) -> bool:
    return any(payload in entry.payload for entry in await channel_of(valkey, generation))


async def test_appends_of_a_tick_go_out_as_one_write(
    valkey: Redis, valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamway.valkey import link

    writes: list[int] = []
    flush = link.LinkSession.flush

    def counting(session: link.LinkSession) -> None:
        if session._unsent:
            writes.append(sum(b"NOMKSTREAM" in command for command in session._unsent))
        flush(session)

    monkeypatch.setattr(link.LinkSession, "flush", counting)
    engine = ScriptedEngine(slots=10)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        numbers = [await stream.subscribe(await enqueue(valkey, durable())) for _ in range(10)]
        await engine.next_call(10)
        for call in engine.calls:
            call.say("first")
        for number in numbers:
            await stream.until(number, 3)
        writes.clear()
        for call in engine.calls:
            call.say("a", "b")
        for number in numbers:
            await stream.until(number, 4)
        assert [count for count in writes if count] == [10]


async def test_entries_name_what_they_are(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("x",))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, durable())
        await stream.all(await stream.subscribe(generation))
        entries = await channel_of(valkey, generation)
        begin = entries[1]
        assert begin.begin is not None
        assert (begin.kind, begin.begin.worker, begin.begin.from_worker) == (Kind.BEGIN, WORKER, "")
        assert entries[-1].kind is Kind.END
