"""`token_path = relay`: a router in the workers' place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from streamway.attach import AttachClient
from streamway.errors import InvalidArgument, StreamwayError, from_rpc_error, from_status
from streamway.journal import START, Cursor
from streamway.runtime.ids import new_generation_id
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from streamway.v1.inference_pb2 import View
from tests.support.inference_service import finished, started, token
from tests.support.journaling_worker import words
from tests.support.router_mesh import ask, mesh, until
from tests.support.takeover_mesh import takeover_mesh, text_of
from tests.support.valkey_server import ValkeyServer


class _Sink:
    def __init__(self) -> None:
        self.events: list[common_pb2.Event] = []
        self.error: StreamwayError | None = None

    def event(self, event: common_pb2.Event, kind: str) -> None:
        copy = common_pb2.Event()
        copy.CopyFrom(event)
        self.events.append(copy)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self.error = error

    def gap(self) -> None:
        raise AssertionError("a relay has no gaps")

    @property
    def kinds(self) -> list[str | None]:
        return [event.WhichOneof("event") for event in self.events]


@pytest.fixture
async def scope() -> AsyncIterator[TaskScope]:
    async with TaskScope("test") as scope:
        yield scope


async def test_each_view_is_served_and_a_cancel_is_passed_on(
    valkey: Redis, valkey_server: ValkeyServer, scope: TaskScope
) -> None:
    async with mesh(valkey, valkey_server.url, token_path="relay") as made:
        stream, hand = made.connect(), made.workers[0].hand
        generation = await stream.open(ask())
        accepted = (await stream.first(generation)).accepted
        assert (accepted.worker, accepted.source) == ("w0", made.app.address)
        client = AttachClient(accepted.source, accepted.worker, made.shared, scope)
        live, outcome, complete = _Sink(), _Sink(), _Sink()
        client.subscribe(generation, Cursor(0, 1), View.VIEW_LIVE, live)
        client.subscribe(generation, Cursor(0, 1), View.VIEW_OUTCOME, outcome)
        client.subscribe(generation, Cursor(0, 1), View.VIEW_COMPLETE, complete)
        await until(lambda: len(hand.subscribed) == 4)
        client.cancel(generation)
        await until(lambda: hand.cancelled == [generation])
        hand.push(generation, started(2), token(3, "x"))
        await until(lambda: live.kinds == ["started", "token"])
        assert outcome.events == complete.events == []
        hand.push(generation, finished(4))
        await until(lambda: live.kinds[-1:] == outcome.kinds == ["finished"] and len(complete.kinds) == 3)
        await client.close()
        await stream.close()


async def test_a_reader_that_leaves_the_relay_leaves_the_worker(
    valkey: Redis, valkey_server: ValkeyServer, scope: TaskScope
) -> None:
    async with mesh(valkey, valkey_server.url, token_path="relay") as made:
        stream, hand = made.connect(), made.workers[0].hand
        generation = await stream.open(ask())
        source = (await stream.first(generation)).accepted.source
        client, sink = AttachClient(source, "w0", made.shared, scope), _Sink()
        number = client.subscribe(generation, Cursor(0, 1), View.VIEW_LIVE, sink)
        client.subscribe(generation, Cursor(0, 1), View.VIEW_LIVE, _Sink())
        await until(lambda: len(hand.subscribed) == 3)
        client.unsubscribe(number)
        await until(lambda: sum(command.HasField("unsubscribe") for command in hand.commands) == 1)
        await client.close()
        await until(lambda: sum(command.HasField("unsubscribe") for command in hand.commands) == 2)
        assert hand.cancelled == [], "the worker waits for its grace"
        await stream.close()


async def test_what_a_relay_can_not_find_ends_that_subscription_alone(
    valkey: Redis, valkey_server: ValkeyServer, scope: TaskScope
) -> None:
    async with takeover_mesh(valkey_server.url, workers=1, token_path="relay") as ((made,), _):
        stream = made.connect()
        generation = await stream.open(ask(), location=False)
        await until(lambda: "finished" in stream.kinds(generation), 10)
        client, unknown, known = AttachClient(made.app.address, "w0", made.shared, scope), _Sink(), _Sink()
        client.subscribe(new_generation_id(), START, View.VIEW_LIVE, unknown)
        client.subscribe(generation, START, View.VIEW_LIVE, known)
        await until(lambda: unknown.kinds == ["error"] and known.kinds[-1:] == ["finished"])
        error = unknown.events[0]
        assert (from_status(error.error.status).name, error.epoch) == ("generation_not_found", 0)
        assert text_of(known.events) == words(20), "an ended one comes from its channel"
        await client.close()
        await stream.close()


async def test_what_makes_no_sense_ends_the_stream(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, token_path="relay") as made:
        channel = grpc.aio.insecure_channel(made.app.address)
        async with channel:
            stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
            for command in (
                inference_pb2.AttachCommand(),
                inference_pb2.AttachCommand(subscribe=inference_pb2.Subscribe(generation="g")),
                inference_pb2.AttachCommand(inline_task=inference_pb2.InlineTask()),
            ):
                call = stub.Attach()
                await call.write(inference_pb2.AttachRequest(commands=[command]))
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call.read()
                assert isinstance(from_rpc_error(refused.value), InvalidArgument)
            load = await stub.GetLoad(inference_pb2.GetLoadRequest())
            assert (load.worker, list(load.models), load.slots) == ("router-0", ["m"], 4)


async def test_a_quiet_relay_gives_signs_of_life(valkey: Redis, valkey_server: ValkeyServer, scope: TaskScope) -> None:
    async with mesh(valkey, valkey_server.url, token_path="relay", attach_heartbeat_s=0.2) as made:
        stream = made.connect()
        generation = await stream.open(ask())
        source = (await stream.first(generation)).accepted.source
        client, sink = AttachClient(source, "w0", made.shared, scope, silence_s=0.8, reattach_s=0.3), _Sink()
        client.subscribe(generation, Cursor(0, 1), View.VIEW_LIVE, sink)
        await asyncio.sleep(1.5)
        assert client.connected
        assert sink.error is None
        await client.close()
        await stream.close()
