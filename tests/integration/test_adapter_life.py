"""The life of an inference-adapter: start, restart, drain, and a Valkey that goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from redis.asyncio import Redis

from services.inference_adapter.core import hidden
from streamway.runtime.start import StartError
from streamway.valkey import keys
from tests.support.adapter_world import (
    WORKER,
    Attached,
    assert_tile,
    attached,
    enqueue,
    eventually,
    kinds,
    make_adapter,
    reason,
    request,
    running_adapter,
    state_of,
    text,
    unfinished,
)
from tests.support.ports import free_port
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer


async def ready(address: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/readyz") as response:
        return response.status, (await response.text()).strip()


async def serving(address: str) -> str:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def test_a_worker_says_what_it_waits_for_until_it_is_ready(valkey: Redis, valkey_server: ValkeyServer) -> None:
    class SlowEngine(ScriptedEngine):
        loaded = asyncio.Event()

        async def start(self) -> None:
            await self.loaded.wait()

    engine = SlowEngine()
    adapter = make_adapter(valkey_server.url, engine)
    start = asyncio.get_running_loop().create_task(adapter.start())
    await asyncio.sleep(0.3)
    assert await ready(adapter.operations_address) == (503, "the engine is loading its model")
    assert await valkey.exists(keys.lease("worker", WORKER)) == 0
    engine.loaded.set()
    await start
    assert await ready(adapter.operations_address) == (200, "ready")
    assert await serving(adapter.address) == "SERVING"
    assert await valkey.hget(keys.lease("worker", WORKER), "draining") == b"0"
    await adapter.close()


async def test_a_start_that_fails_unwinds_and_says_what_to_do(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, ScriptedEngine()) as first:
        port = int(first.address.rsplit(":", 1)[1])
        second = make_adapter(valkey_server.url, engine, worker="second", port=port)
        with pytest.raises(StartError, match="not free"):
            await second.start()
    assert engine.closed
    assert await valkey.exists(keys.lease("worker", "second")) == 0


async def test_after_a_restart_what_ran_is_lost_and_what_waited_is_run(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        ran = await enqueue(valkey, request("ran"))
        number = await stream.subscribe(ran, after=1)
        (await engine.next_call()).say("a")
        before = await stream.until(number, 2)
        waited = await enqueue(valkey, request("waited"))
        await eventually(lambda: adapter.window.waiting, 1)
        await eventually(lambda: state_of(valkey, ran), "running")
    unread = await enqueue(valkey, request("unread"))

    engine = ScriptedEngine(slots=1, answer=("b",))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        (event,) = await stream.all(await stream.subscribe(ran, after=before[-1].position))
        assert (reason(event), event.error.delivered_until) == ("worker_lost", 3)
        for generation in (waited, unread):
            assert text(await stream.all(await stream.subscribe(generation, after=1))) == "b"
        await eventually(lambda: unfinished(valkey), 0)
        assert [await state_of(valkey, one) for one in (ran, waited, unread)] == ["failed", "finished", "finished"]
    assert [call.prompt for call in engine.calls] == ["waited", "unread"]


async def test_a_task_whose_reply_was_lost_is_found_among_the_own_pending_ones(
    valkey: Redis, valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added and read under the worker's name in one step: it is pending here, and this worker never saw it."""
    monkeypatch.setattr(hidden, "LOOK_S", 0.5)
    wanted, lane = request(), keys.lane(WORKER, "gold")
    async with (
        running_adapter(valkey_server.url, ScriptedEngine(answer=("a",))) as adapter,
        attached(adapter) as stream,
    ):
        await eventually(lambda: valkey.exists(lane), 1)
        generation = await enqueue(valkey, wanted, worker="elsewhere")
        ((_, copy),) = await valkey.xrange(keys.lane("elsewhere", "gold"))
        async with valkey.pipeline(transaction=True) as pipe:
            pipe.xadd(lane, copy)
            pipe.xreadgroup(keys.LANE_GROUP, WORKER, {lane: ">"}, count=1)
            await pipe.execute()
        assert text(await stream.all(await stream.subscribe(generation, after=1))) == "a"


async def test_what_ended_in_an_earlier_life_is_told_as_lost_to_who_asks_for_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("a",))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        await stream.all(await stream.subscribe(generation))
        await eventually(lambda: unfinished(valkey), 0)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        # One that has read something of it can only be lost, at once; one that has not could be early.
        assert (
            reason((await stream.all(await stream.subscribe(generation, after=3), within_s=1.5))[-1]) == "worker_lost"
        )
        number = await stream.subscribe(generation, after=1, view="VIEW_OUTCOME")
        assert reason((await stream.all(number, within_s=20))[-1]) == "worker_lost"


async def test_a_reader_with_more_than_this_life_made_is_told_that_the_worker_was_lost(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        (await engine.next_call()).say("a")
        await asyncio.sleep(0.05)
        (event,) = await stream.all(await stream.subscribe(generation, after=50))
        assert (reason(event), event.position) == ("worker_lost", 51)


async def test_l1_a_drain_is_told_at_once_and_lets_accepted_work_end(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=1)
    async with (
        running_adapter(valkey_server.url, engine, preload_depth=0, drain_notice_s=0.5) as adapter,
        attached(adapter) as stream,
    ):
        numbers = [await stream.subscribe(await enqueue(valkey, request("running")))]
        await engine.next_call()
        numbers.append(await stream.subscribe(await enqueue(valkey, request("in the lane"))))
        drain = asyncio.get_running_loop().create_task(adapter.drain())
        await eventually(lambda: serving(adapter.address), "NOT_SERVING")
        await eventually(lambda: ready(adapter.operations_address), (503, "draining"))
        await eventually(lambda: valkey.hget(keys.lease("worker", WORKER), "draining"), b"1")
        # A router that has not noticed yet.
        numbers.append(await stream.subscribe(await enqueue(valkey, request("late"))))
        for count in range(1, 4):
            call = await engine.next_call(count)
            await asyncio.sleep(0.2)
            assert not drain.done()
            call.say("x")
            call.end()
        for number in numbers:
            assert kinds(await stream.all(number))[-1] == "finished"
        async with asyncio.timeout(20):
            await drain
        assert await unfinished(valkey) == 0


async def test_a_drain_ends_what_takes_longer_than_its_grace(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1)
    async with (
        running_adapter(valkey_server.url, engine, drain_grace_s=0.5, drain_notice_s=0.1) as adapter,
        attached(adapter) as stream,
    ):
        generations = [await enqueue(valkey, request(prompt)) for prompt in ("running", "waiting")]
        numbers = [await stream.subscribe(generation) for generation in generations]
        call = await engine.next_call()
        call.say("a")
        await eventually(lambda: adapter.window.waiting, 1)
        drain = asyncio.get_running_loop().create_task(adapter.drain())
        for number in numbers:
            assert reason((await stream.all(number))[-1]) == "going_away"
        await drain
        assert call.aborted
        assert len(engine.calls) == 1
    assert [await state_of(valkey, generation) for generation in generations] == ["failed", "failed"]
    assert await unfinished(valkey) == 0


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[list[ValkeyServer]]:
    """A server that keeps its data over a restart; the newest is the last."""
    servers = [ValkeyServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")]
    yield servers
    servers[-1].stop()


async def test_a_valkey_that_goes_away_stops_no_stream_and_its_tasks_are_acknowledged_later(
    own_valkey: list[ValkeyServer], tmp_path: Path
) -> None:
    engine = ScriptedEngine(slots=1)
    url = own_valkey[0].url
    valkey = Redis.from_url(url)
    async with running_adapter(url, engine) as adapter, attached(adapter) as stream:
        runs, waits = await enqueue(valkey, request("runs")), await enqueue(valkey, request("waits"))
        numbers = [await stream.subscribe(runs), await stream.subscribe(waits)]
        call = await engine.next_call()
        call.say("a")
        await stream.until(numbers[0], 2)
        await eventually(lambda: adapter.window.waiting, 1)

        own_valkey[0].stop()
        call.say("b")
        await asyncio.sleep(0.5)
        call.say("c")
        call.end()
        events = await stream.all(numbers[0])
        assert_tile(events)
        assert text(events) == "abc"
        second = await engine.next_call(2)
        second.say("d")
        await asyncio.sleep(0.5)

        own_valkey.append(ValkeyServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always"))
        await eventually(lambda: state_of(valkey, runs), "finished")
        await eventually(lambda: state_of(valkey, waits), "running")
        assert len(engine.calls) == 2
        second.end()
        assert text(await stream.all(numbers[1])) == "d"
        await eventually(lambda: unfinished(valkey), 0)
        await eventually(lambda: valkey.exists(keys.lease("worker", WORKER)), 1)

        number = await stream.subscribe(await enqueue(valkey, request("new")))
        third = await engine.next_call(3)
        third.end()
        assert kinds(await stream.all(number))[-1] == "finished"
    await valkey.aclose()


async def test_a_valkey_that_comes_back_empty_is_used_again(own_valkey: list[ValkeyServer], tmp_path: Path) -> None:
    engine = ScriptedEngine(answer=("x",))
    url = own_valkey[0].url
    valkey = Redis.from_url(url)
    async with running_adapter(url, engine) as adapter, attached(adapter) as stream:
        await valkey.flushall()
        assert text(await stream.all(await stream.subscribe(await enqueue(valkey, request())))) == "x"
    await valkey.aclose()


async def test_an_engine_that_dies_ends_the_worker(valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter:
        failed = asyncio.get_running_loop().create_task(adapter.failed())
        await asyncio.sleep(0.1)
        assert not failed.done()
        engine.died.set()
        async with asyncio.timeout(20):
            await failed


async def test_the_process_serves_drains_and_ends(valkey: Redis, valkey_server: ValkeyServer) -> None:
    port, operations = free_port(), free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "services.inference_adapter", "--worker", WORKER, "--backend", "simulated"),
            *("--port", str(port), "--operations-port", str(operations)),
        ],
        env={**os.environ, "STREAMWAY_VALKEY_URL": valkey_server.url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        await eventually(lambda: valkey.exists(keys.lease("worker", WORKER)), 1, within_s=20)
        stream = Attached(f"127.0.0.1:{port}")
        number = await stream.subscribe(await enqueue(valkey, request(model="simulated")))
        assert kinds(await stream.all(number))[-1] == "finished"
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{operations}/metrics") as response,
        ):
            page = await response.text()
        assert 'streamway_generations_total{state="finished"} 1.0' in page
        await stream.close()
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.to_thread(process.communicate, timeout=10)
        assert process.returncode == 0, log
        assert time.monotonic() - begun > 1.4
        assert "Traceback" not in log
        assert "hello" not in log
        assert await valkey.exists(keys.lease("worker", WORKER)) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
