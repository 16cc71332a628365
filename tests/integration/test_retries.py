"""Engine calls that came to nothing before their first token are made again elsewhere, within a budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.core.retry_budget import window_of
from streamway.errors import EngineFailed, EngineOverloaded, StreamwayError, from_status
from streamway.journal import Kind
from streamway.runtime.clock import SystemClock
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.support.adapter_world import (
    Attached,
    assert_tile,
    attached,
    channel_of,
    enqueue,
    eventually,
    kinds,
    reason,
    request,
    state_of,
    text,
)
from tests.support.scripted_engine import ScriptedEngine
from tests.support.two_workers import RELAXED, router_lease, worker
from tests.support.valkey_server import ValkeyServer

OFF = common_pb2.DURABILITY_OFF
both = pytest.mark.parametrize("durability", [RELAXED, OFF], ids=["relaxed", "off"])


class World:
    """Workers with scripted engines, and a reader at each."""

    def __init__(self, valkey: Redis) -> None:
        self.valkey = valkey
        self.engines: dict[str, ScriptedEngine] = {}
        self.adapters: dict[str, Adapter] = {}
        self.readers: dict[str, Attached] = {}

    async def ask(self, durability: Any, prompt: str = "hello", **fields: Any) -> str:
        """To worker a."""
        return await enqueue(self.valkey, request(prompt, durability=durability, **fields), worker="a")

    async def holder(self, generation: str) -> str:
        return (await self.valkey.hget(keys.generation(generation), "worker") or b"").decode()

    async def left(self, generation: str, name: str, after: int = 1, epoch: int = 0) -> list[common_pb2.Event]:
        """What a reader gets at a worker before it is sent elsewhere."""
        stream = self.readers[name]
        events = await stream.all(await stream.subscribe(generation, after=after, after_epoch=epoch))
        assert reason(events[-1]) == "events_expired"
        assert not events[-1].epoch
        return events[:-1]

    async def read_on(self, generation: str, name: str, told: list[common_pb2.Event]) -> list[common_pb2.Event]:
        """What the same reader gets at the next one."""
        last = told[-1] if told else common_pb2.Event(position=1)
        stream = self.readers[name]
        number = await stream.subscribe(generation, after=last.position, after_epoch=last.epoch)
        return await stream.all(number)


@asynccontextmanager
async def workers(
    valkey: Redis, url: str, *names: str, of_a: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[World]:
    """`of_a`: settings that only worker a has."""
    await router_lease(valkey, SystemClock())
    world = World(valkey)
    async with AsyncExitStack() as stack:
        for name in names:
            engine = world.engines[name] = ScriptedEngine()
            own = {**settings, **((of_a or {}) if name == "a" else {})}
            world.adapters[name] = await stack.enter_async_context(worker(url, name, engine, **own))
            world.readers[name] = await stack.enter_async_context(attached(world.adapters[name]))
        yield world


def broken(name: str) -> StreamwayError:
    return EngineFailed(name, "it was told to be broken")


@both
async def test_a_call_without_a_first_token_is_made_again_elsewhere_and_its_reader_sees_one_whole_answer(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    async with workers(valkey, valkey_server.url, "a", "b", of_a={"first_token_timeout_s": 3.0}) as world:
        generation = await world.ask(durability)
        stalling = await world.engines["a"].next_call()
        stalling.sink.started()
        told = await world.left(generation, "a")
        assert kinds(told) == ["started"]
        assert stalling.aborted
        call = await world.engines["b"].next_call()
        assert call.so_far is None
        call.say("one ", "two ")
        call.end()
        after = await world.read_on(generation, "b", told)
        # No text was there to take over: the client sees another beginning, and nothing twice.
        assert kinds(after)[0] == "started"
        assert "taken_over" not in kinds(after)
        assert after[0].epoch > told[0].epoch
        assert (after[0].started.worker, text(after)) == ("b", "one two ")
        assert_tile(told + after)
        # Who comes late, and has only `accepted`, gets the same.
        late = world.readers["b"]
        events = await late.all(await late.subscribe(generation, after=1))
        assert [event.position for event in events if event.HasField("started")] == [2, 3]
        assert text(events) == "one two "
        assert_tile(events)
        await eventually(lambda: state_of(valkey, generation), "finished")
        for name in ("a", "b"):
            await eventually(lambda name=name: valkey.xlen(keys.lane(name, "gold")), 0)


@both
async def test_a_call_that_was_refused_before_it_began_is_made_again(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    async with workers(valkey, valkey_server.url, "a", "b") as world:
        generation = await world.ask(durability)
        (await world.engines["a"].next_call()).sink.failed(broken("a"))
        told = await world.left(generation, "a")
        call = await world.engines["b"].next_call()
        call.say("whole")
        call.end()
        after = await world.read_on(generation, "b", told)
        assert text(after) == "whole"
        assert_tile(told + after)


@both
async def test_each_worker_is_asked_once_and_then_the_client_is_told_when_to_come_again(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    async with workers(valkey, valkey_server.url, "a", "b", first_token_timeout_s=0.6) as world:
        generation = await world.ask(durability)
        told = await world.left(generation, "a")
        events = await world.read_on(generation, "b", told)
        error = from_status(events[-1].error.status)
        assert (error.name, error.row.http) == ("first_token_timeout", 503)
        assert error.retry_after_s is not None
        assert_tile(told + events)
        assert [len(world.engines[name].calls) for name in "ab"] == [1, 1]
        await eventually(lambda: state_of(valkey, generation), "failed")
        await eventually(lambda: valkey.xlen(keys.lane("b", "gold")), 0)


@both
async def test_a_call_is_made_again_twice_at_most(valkey: Redis, valkey_server: ValkeyServer, durability: Any) -> None:
    async with workers(valkey, valkey_server.url, "a", "b", "c", "d") as world:
        generation = await world.ask(durability)
        tried = ["a"]
        for number in range(3):
            call = await world.engines[tried[-1]].next_call()
            if number < 2:
                call.sink.failed(broken(tried[-1]))
                await eventually(lambda: _moved_on(world, generation, tried[-1]), True)
                tried.append(await world.holder(generation))
        call.sink.failed(broken(tried[-1]))
        await eventually(lambda: state_of(valkey, generation), "failed")
        assert len(set(tried)) == 3
        assert sum(len(engine.calls) for engine in world.engines.values()) == 3


async def _moved_on(world: World, generation: str, worker_name: str) -> bool:
    return await world.holder(generation) not in (worker_name, "")


@both
async def test_without_budget_the_error_is_told_at_once(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    async with workers(valkey, valkey_server.url, "a", "b", retry_floor=0) as world:
        # Twenty calls of late, on all workers, pay for two: one is spent, and one is left.
        number, _ = window_of(time.time())
        await valkey.hset(keys.retries("scripted", number), mapping={"calls": 20, "retries": 1})
        first, second = await world.ask(durability), await world.ask(durability)
        calls = [await world.engines["a"].next_call(1), await world.engines["a"].next_call(2)]
        calls[0].sink.failed(broken("a"))
        await world.engines["b"].next_call()
        calls[1].sink.failed(broken("a"))
        states = {first: "failed", second: "failed"}
        retried = (await world.engines["b"].next_call()).request.generation
        (refused,) = states.keys() - {retried}
        await eventually(lambda: state_of(valkey, refused), "failed")
        stream = world.readers["a"]
        events = await stream.all(await stream.subscribe(refused, after=1))
        assert reason(events[-1]) == "engine_failed"


@both
async def test_after_the_first_token_nothing_is_made_again(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    async with workers(valkey, valkey_server.url, "a", "b") as world:
        generation = await world.ask(durability)
        number = await world.readers["a"].subscribe(generation, after=1)
        call = await world.engines["a"].next_call()
        call.say("one ")
        await world.readers["a"].until(number, 2)
        call.sink.failed(broken("a"))
        told = await world.readers["a"].all(number)
        if durability == OFF:
            assert reason(told[-1]) == "engine_failed"
            assert told[-1].error.delivered_until == 3
            await asyncio.sleep(0.2)
            assert not world.engines["b"].calls
            return
        # A takeover goes on behind what was shown, whatever the budget says.
        assert from_status(told[-1].error.status).metadata["moved"] == "engine_failed"
        heir = await world.engines["b"].next_call()
        assert heir.so_far is not None
        assert heir.so_far.text == "one "
        heir.say("two ")
        heir.end()
        after = await world.read_on(generation, "b", told[:-1])
        assert kinds(after)[0] == "taken_over"
        assert text(told + after) == "one two "
        number, _ = window_of(time.time())
        for window in (number - 1, number):
            assert await valkey.hget(keys.retries("scripted", window), "retries") is None


@both
async def test_a_cancel_between_two_workers_ends_it(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    async with workers(valkey, valkey_server.url, "a", "b") as world:
        generation = await world.ask(durability)
        number = await world.readers["a"].subscribe(generation, after=1)
        call = await world.engines["a"].next_call()
        call.sink.failed(broken("a"))
        world.adapters["a"]._worker.cancel(generation, None)
        events = await world.readers["a"].all(number)
        assert reason(events[-1]) in ("cancelled", "events_expired")
        await eventually(lambda: _ended(world, generation, durability), True, 10)


async def _ended(world: World, generation: str, durability: Any) -> bool:
    """Cancelled in its channel, or nobody works on it."""
    if durability == OFF:
        return all(call.aborted for call in world.engines["b"].calls) or not world.engines["b"].calls
    entries = await channel_of(world.valkey, generation)
    return entries[-1].kind is Kind.END


async def test_an_engine_that_wants_a_rest_gets_it_and_others_take_the_work(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with workers(valkey, valkey_server.url, "a", "b") as world:
        generation = await world.ask(RELAXED)
        (await world.engines["a"].next_call()).sink.failed(EngineOverloaded("a", 503, 1.5))
        at = time.monotonic()
        call = await world.engines["b"].next_call()
        assert call.request.generation == generation
        call.say("whole")
        call.end()
        later = await world.ask(RELAXED, "later")
        call = await world.engines["a"].next_call(2)
        assert time.monotonic() - at >= 1.4
        assert call.request.generation == later
        call.say("rested")
        call.end()
        await eventually(lambda: state_of(valkey, later), "finished")


async def test_a_client_without_another_worker_is_told_how_long_the_engine_wants_to_rest(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with workers(valkey, valkey_server.url, "a") as world:
        generation = await world.ask(RELAXED)
        (await world.engines["a"].next_call()).sink.failed(EngineOverloaded("a", 429, 7.0))
        stream = world.readers["a"]
        events = await stream.all(await stream.subscribe(generation, after=1))
        error = from_status(events[-1].error.status)
        assert (error.name, error.row.http, error.retry_after_s) == ("engine_overloaded", 503, 7.0)
