"""What holds a slot while the store is away, and a cancel that meets a task on its way to another worker."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from streamway.errors import EngineFailed
from streamway.runtime.clock import SystemClock
from streamway.v1 import common_pb2, inference_pb2
from tests.support.adapter_world import attached, channel_of, enqueue, eventually, reason, request, state_of, text
from tests.support.ports import free_port
from tests.support.proxy import proxy_to
from tests.support.scripted_engine import ScriptedEngine
from tests.support.two_workers import RELAXED, STRICT, ended, events_in, router_lease, worker
from tests.support.valkey_server import ValkeyServer


@pytest.fixture
def tcp_server(tmp_path: Path) -> Iterator[tuple[ValkeyServer, int]]:
    """A server of the test's own, that a network may lie before."""
    port = free_port()
    server = ValkeyServer(tmp_path, "--port", str(port))
    yield server, port
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGCONT)
    server.stop()


def asked(durability: common_pb2.Durability.ValueType = RELAXED) -> common_pb2.GenerationRequest:
    return request(model="scripted", durability=durability)


async def last_reason(valkey: Redis, generation: str) -> str:
    """The error that a channel ends with; empty while there is none."""
    entries = await channel_of(valkey, generation)
    return reason(events_in(entries)[-1]) if ended(entries) else ""


async def test_a_task_that_waits_for_the_store_gives_its_slot_to_others(tcp_server: tuple[ValkeyServer, int]) -> None:
    server, port = tcp_server
    valkey = Redis.from_url(server.url)
    engine = ScriptedEngine(slots=1)
    async with (
        proxy_to(f"http://127.0.0.1:{port}") as network,
        worker(network.url.replace("http:", "redis:"), "a", engine) as adapter,
        attached(adapter) as stream,
    ):
        # The answer to its begin never comes.
        network.deaf_to = b"appended"
        generation = await enqueue(valkey, asked(), worker="a")
        number = await stream.subscribe(generation, after=1)
        await network.deafened()
        wanted = asked()
        task = inference_pb2.InlineTask(request=wanted, created_ms=int(time.time() * 1000))
        await stream.send(inference_pb2.AttachCommand(inline_task=task))
        other = await stream.subscribe(wanted.generation, after=1)
        call = await engine.next_call()
        assert call.request.generation == wanted.generation
        network.deaf_to = b""
        network.cut()
        call.say("past the store")
        # It has begun by now, and waits for the slot.
        await eventually(lambda: state_of(valkey, generation), "running", 10)
        assert len(engine.calls) == 1
        call.end()
        assert text(await stream.all(other)) == "past the store"
        late = await engine.next_call(2)
        assert late.request.generation == generation
        late.say("and now this")
        late.end()
        assert text(await stream.all(number)) == "and now this"
    await valkey.aclose()


async def test_a_cancel_while_a_task_is_on_its_way_to_another_worker_is_carried_over(
    tcp_server: tuple[ValkeyServer, int],
) -> None:
    server, _ = tcp_server
    valkey = Redis.from_url(server.url)
    engine = ScriptedEngine()
    async with worker(server.url, "a", engine, strict_pause_s=1.0) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, asked(STRICT), worker="a")
        number = await stream.subscribe(generation, after=1)
        call = await engine.next_call()
        call.say("one ")
        await stream.until(number, 2)
        os.kill(server.pid, signal.SIGSTOP)
        call.say("two ")
        assert reason((await stream.all(number))[-1]) == "store_unavailable"
        await stream.cancel(generation)
        # An answer on the same stream says that the cancel was read.
        await stream.all(await stream.subscribe(generation, after=1))
        os.kill(server.pid, signal.SIGCONT)
        await eventually(lambda: last_reason(valkey, generation), "cancelled", 15)
        await eventually(lambda: state_of(valkey, generation), "cancelled", 10)
        await eventually(lambda: all(each.aborted for each in engine.calls), True, 10)
    await valkey.aclose()


async def test_a_cancel_at_a_worker_that_gave_the_task_away_is_carried_over(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    await router_lease(valkey, SystemClock())
    first_engine, second_engine = ScriptedEngine(), ScriptedEngine()
    async with worker(url, "a", first_engine) as first, worker(url, "b", second_engine), attached(first) as stream:
        generation = await enqueue(valkey, asked(), worker="a")
        number = await stream.subscribe(generation, after=1)
        call = await first_engine.next_call()
        call.say("one ")
        await stream.until(number, 2)
        call.sink.failed(EngineFailed("scripted", "it fell over"))
        heir = await second_engine.next_call()
        await stream.all(number)
        await stream.cancel(generation)
        await eventually(lambda: last_reason(valkey, generation), "cancelled", 10)
        # Who has it learns of it with its next token.
        heir.say("two ")
        await eventually(lambda: heir.aborted, True, 10)
        assert text(events_in(await channel_of(valkey, generation))) == "one "
