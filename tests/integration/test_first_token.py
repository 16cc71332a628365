"""An engine that makes no first token: real Valkey, real gRPC, engines that are silent."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from streamway.errors import from_status
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.support.adapter_world import assert_tile, attached, enqueue, eventually, kinds, request, state_of
from tests.support.scripted_engine import ScriptedEngine
from tests.support.two_workers import RELAXED, worker
from tests.support.valkey_server import ValkeyServer

OFF = common_pb2.DURABILITY_OFF


@pytest.mark.parametrize("durability", [RELAXED, OFF])
async def test_an_engine_without_a_first_token_in_time_is_cancelled_and_the_client_may_ask_again(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    engine = ScriptedEngine()
    async with (
        worker(valkey_server.url, "a", engine, first_token_timeout_s=1.5) as adapter,
        attached(adapter) as stream,
    ):
        generation = await enqueue(valkey, request(durability=durability), worker="a")
        call = await engine.next_call()
        call.sink.started()
        events = await stream.all(await stream.subscribe(generation, after=1))
        error = from_status(events[-1].error.status)
        assert (error.name, error.row.http, error.row.retryable) == ("first_token_timeout", 503, True)
        assert error.retry_after_s is not None
        assert kinds(events) == ["started", "error"]
        assert_tile(events)
        assert call.aborted
        await eventually(lambda: adapter.window.running, 0)
        await eventually(lambda: state_of(valkey, generation), "failed")


async def test_bulk_work_and_a_model_with_its_own_limit_wait_longer(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine, patient = ScriptedEngine(), ScriptedEngine(model="patient")
    limits = {"first_token_timeout_s": 0.5, "first_token_timeout_models": {"patient": 0.0}}
    async with (
        worker(valkey_server.url, "a", engine, **limits) as first,
        worker(valkey_server.url, "b", patient, **limits) as second,
        attached(first) as stream,
        attached(second) as other,
    ):
        bulk = await stream.subscribe(await enqueue(valkey, request("bulk", priority=-1), worker="a"), after=1)
        slow = await other.subscribe(await enqueue(valkey, request("slow", model="patient"), worker="b"), after=1)
        calls = [await engine.next_call(), await patient.next_call()]
        urgent = await stream.subscribe(await enqueue(valkey, request("urgent"), worker="a"), after=1)
        assert kinds(await stream.all(urgent))[-1] == "error"
        await asyncio.sleep(0.3)
        for call in calls:
            assert not call.aborted
            call.say("late")
            call.end()
        assert kinds(await stream.all(bulk))[-1] == "finished"
        assert kinds(await other.all(slow))[-1] == "finished"


async def test_an_engine_that_was_silent_gets_no_work_until_it_has_made_a_token(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    """Its health check is answered all the time."""
    engine = ScriptedEngine()
    engine.mute = True
    limits = {"first_token_timeout_s": 0.5, "health_timeout_s": 0.2, "engine_check_s": 0.1}
    async with (
        worker(valkey_server.url, "a", engine, **limits) as adapter,
        attached(adapter) as stream,
        grpc.aio.insecure_channel(adapter.address) as channel,
    ):
        inference = inference_pb2_grpc.InferenceServiceStub(channel)

        async def healthy() -> bool:
            return (await inference.GetLoad(inference_pb2.GetLoadRequest())).engine.healthy

        assert await healthy()
        number = await stream.subscribe(await enqueue(valkey, request(), worker="a"), after=1)
        assert kinds(await stream.all(number))[-1] == "error"
        await eventually(healthy, False)
        later = await enqueue(valkey, request(), worker="a")
        engine.mute = False
        await eventually(healthy, True)
        call = await engine.next_call(2)
        call.say("here")
        call.end()
        await eventually(lambda: state_of(valkey, later), "finished")
        assert engine.checks >= 2
