"""The router with real gRPC and a real Valkey; its workers are written by hand."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from redis.asyncio import Redis

from streamway.errors import StreamwayError, from_rpc_error, from_status
from streamway.lanes import request_of
from streamway.rpc import open_channel
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.inference_service import HandServer, finished, started, token
from tests.support.ports import free_port
from tests.support.router_mesh import ConnectStream, ask, mesh, until
from tests.support.valkey_server import ValkeyServer


def _reason(event: common_pb2.Event) -> str:
    return from_status(event.error.status).name


async def _refusal(stream: ConnectStream, request: common_pb2.GenerationRequest) -> StreamwayError:
    event = await stream.first(await stream.open(request))
    assert event.WhichOneof("event") == "error", event
    assert event.position == 1
    return from_status(event.error.status)


async def _collect(call: Any) -> list[common_pb2.Event]:
    return [event async for response in call for event in response.events]


class TestConnect:
    async def test_an_open_is_accepted_with_a_location_and_its_task_lies_in_the_workers_lane(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            stream, worker = made.connect(), made.workers[0]
            generation = await stream.open(ask("hello", session="abc"))
            event = await stream.first(generation)
            assert event.position == 1
            assert event.accepted.worker == "w0"
            assert event.accepted.source == worker.server.address
            assert event.accepted.route == "home"
            assert event.accepted.cache == "off"
            assert event.accepted.cursor == "0-1"
            assert len(event.accepted.session) == 16
            tasks = await worker.take()
            assert [(task.copy.generation, task.copy.attempt) for task in tasks] == [(generation, 1)]
            found = (await request_of(valkey, [generation]))[0]
            assert found is not None
            request, state, _ = found
            assert state == "queued"
            assert request.messages[0].content == "hello"
            assert request.session == event.accepted.session
            await until(lambda: bool(worker.hand.subscribed))
            worker.hand.push(generation, started(2), token(3, "x"), finished(4))
            await until(lambda: made.app.in_flight == 0)
            assert stream.kinds(generation) == ["accepted"], "the events are read at the worker"
            await stream.close()

    async def test_events_are_relayed_under_their_generations_name(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            stream, hand = made.connect(), made.workers[0].hand
            first = await stream.open(ask("a"), location=False)
            second = await stream.open(ask("b"), location=False)
            await until(lambda: len(hand.subscribed) == 4)
            hand.push(first, started(2), token(3, "one"))
            hand.push(second, started(2), token(3, "two"), finished(4))
            hand.push(first, token(4, "more"), finished(5))
            await until(lambda: "finished" in stream.kinds(first) and "finished" in stream.kinds(second))
            assert stream.kinds(first) == ["accepted", "started", "token", "token", "finished"]
            assert [event.position for event in stream.of(first)] == [1, 2, 3, 4, 5]
            assert [event.token.text for event in stream.of(second) if event.HasField("token")] == ["two"]
            assert all(event.subscription == 0 for event in stream.events)
            await stream.close()

    async def test_a_refused_generation_hurts_no_other_on_the_stream(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            stream, hand = made.connect(), made.workers[0].hand
            good = await stream.open(ask(), location=False)
            await stream.first(good)
            unknown = await _refusal(stream, ask(model="gpt-9"))
            assert (unknown.name, unknown.param) == ("model_not_found", "model")
            assert "served now: m" in unknown.message
            empty = ask()
            del empty.messages[:]
            assert (await _refusal(stream, empty)).param == "messages"
            late = ask(deadline_unix_ms=int(time.time() * 1000) - 5)
            assert (await _refusal(stream, late)).name == "deadline_exceeded"
            await stream.send(router_pb2.ConnectCommand())
            await until(lambda: any(event.generation == "" for event in stream.events))
            nameless = await _refusal(stream, ask(generation="7"))
            assert nameless.param == "generation"
            hand.push(good, started(2), finished(3))
            await until(lambda: stream.kinds(good) == ["accepted", "started", "finished"])
            await stream.close()

    async def test_a_cancel_reaches_the_worker(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            stream, hand = made.connect(), made.workers[0].hand
            located = await stream.open(ask("a"))
            relayed = await stream.open(ask("b"), location=False)
            await stream.first(located)
            await stream.first(relayed)
            await stream.cancel(located)
            await stream.cancel(relayed)
            await stream.cancel(new_generation_id())
            await until(lambda: {located, relayed} <= set(hand.cancelled))
            await stream.close()

    async def test_closing_the_stream_ends_the_reading_and_cancels_only_what_was_asked_to_be(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            stream, hand = made.connect(), made.workers[0].hand
            located = await stream.open(ask("a"))
            relayed = await stream.open(ask("b", on_disconnect=common_pb2.ON_DISCONNECT_CANCEL), location=False)
            kept = await stream.open(ask("c", on_disconnect=common_pb2.ON_DISCONNECT_GRACE), location=False)
            default = await stream.open(ask("d"), location=False)
            for generation in (located, relayed, kept, default):
                await stream.first(generation)
            await until(lambda: len(hand.subscribed) == 7)
            await stream.close()
            await until(lambda: relayed in hand.cancelled)
            await until(lambda: sum(command.HasField("unsubscribe") for command in hand.commands) == 3)
            assert hand.cancelled == [relayed], "the others are left to the worker's grace"

    async def test_what_nobody_has_to_read_gets_a_deadline_where_it_has_none(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        own_ms = int((time.time() + 500) * 1000)
        unread = common_pb2.ON_DISCONNECT_CONTINUE
        async with mesh(valkey, valkey_server.url, unread_s=50) as made:
            stream = made.connect()
            bare = await stream.open(ask("a", on_disconnect=unread))
            named = await stream.open(ask("b", on_disconnect=unread, deadline_unix_ms=own_ms))
            read = await stream.open(ask("c"))
            deadlines = []
            for generation in (bare, named, read):
                await stream.first(generation)
                stored = await valkey.hget(keys.generation(generation), "request")
                deadlines.append(common_pb2.GenerationRequest.FromString(stored or b"").deadline_unix_ms)
            assert 0 < deadlines[0] - time.time() * 1000 <= 50_000
            assert deadlines[1:] == [own_ms, 0]
            await stream.close()

    async def test_after_half_closing_the_rest_is_delivered_and_the_stream_ends(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            stream, hand = made.connect(), made.workers[0].hand
            generation = await stream.open(ask(), location=False)
            await stream.first(generation)
            await stream.call.done_writing()
            await until(lambda: len(hand.subscribed) == 2)
            hand.push(generation, started(2), finished(3))
            await until(lambda: stream.ended)
            assert stream.kinds(generation) == ["accepted", "started", "finished"]
            await stream.close()

    async def test_a_thousand_opens_in_one_message_are_all_accepted(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        # On a machine that is busy a burst takes longer than the store otherwise may, and than a lease lasts.
        patient = {"worker_fields": {"slots": "1000"}, "dispatch_timeout_s": 30.0}
        async with mesh(valkey, valkey_server.url, workers=2, **patient) as made:
            stream = made.connect()
            requests = [ask(f"prompt {number}") for number in range(1000)]
            location = router_pb2.Delivery.DELIVERY_LOCATION
            await stream.send(
                *(
                    router_pb2.ConnectCommand(open=router_pb2.Open(request=request, delivery=location))
                    for request in requests
                )
            )
            async with asyncio.timeout(30):
                while len(stream.events) < 1000:
                    await made.renew()
                    await asyncio.sleep(0.1)
            assert {event.WhichOneof("event") for event in stream.events} == {"accepted"}
            shares = [len(await worker.take(1000)) for worker in made.workers]
            assert sum(shares) == 1000
            assert max(shares) <= 650
            connections = len(await valkey.client_list())
            assert connections < 20, "a burst shares round trips, it does not open connections"
            await stream.close()

    async def test_a_caller_that_does_not_read_is_cut_as_if_it_had_left(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, outbox_limit_bytes=100_000) as made:
            call = made.stub.Connect(metadata=made.metadata)
            request = ask(on_disconnect=common_pb2.ON_DISCONNECT_CANCEL)
            opening = router_pb2.ConnectCommand(open=router_pb2.Open(request=request))
            await call.write(router_pb2.ConnectRequest(commands=[opening]))
            hand = made.workers[0].hand
            await until(lambda: len(hand.subscribed) == 2)
            hand.push(request.generation, started(2))
            for number in range(200):
                hand.push(request.generation, token(number + 3, "x" * 50_000))
                await asyncio.sleep(0)
            await until(lambda: request.generation in hand.cancelled)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await _collect(call)
            assert from_rpc_error(ended.value).name == "slow_consumer"


class TestWorkers:
    async def test_a_draining_or_unhealthy_worker_gets_no_new_work(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, workers=2, poll_s=0.05) as made:
            stream = made.connect()
            made.workers[0].fields["draining"] = "1"
            await made.renew()
            await made.look()
            routes = set()
            for number in range(12):
                event = await stream.first(await stream.open(ask(f"{number}")))
                assert event.accepted.worker == "w1"
                routes.add(event.accepted.route)
            assert routes == {"home", "moved"}
            made.workers[1].fields["healthy"] = "0"
            await made.renew()
            await made.look()
            refused = await _refusal(stream, ask())
            assert (refused.name, refused.retry_after_s) == ("no_workers", 1)
            await stream.close()

    async def test_a_full_queue_is_refused_with_a_time_to_try_again(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        fields = {"slots": "2"}
        async with mesh(valkey, valkey_server.url, queue_limit=3, worker_fields=fields) as made:
            stream = made.connect()
            positions = []
            for number in range(5):
                event = await stream.first(await stream.open(ask(f"{number}")))
                positions.append(event.accepted.queue_position)
            assert positions == [0, 0, 1, 2, 3]
            refused = await _refusal(stream, ask())
            assert refused.name == "queue_full"
            assert refused.retry_after_s == 1
            await stream.close()

    async def test_each_lane_has_a_queue_of_its_own_and_what_was_accepted_stays(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        # One slot, and in each lane twice a depth of one beyond it.
        fields = {"slots": "1", "preload_depth": "1"}
        bronze = {"entitlement": common_pb2.Entitlement(tier=common_pb2.TIER_BRONZE, weight=1)}
        async with mesh(valkey, valkey_server.url, worker_fields=fields, poll_s=0.05) as made:
            stream, registry = made.connect(), made.app._made().registry

            async def accepted(**fields: Any) -> None:
                event = await stream.first(await stream.open(ask(**fields)))
                assert event.WhichOneof("event") == "accepted"

            await accepted(priority=-1)
            made.workers[0].fields |= {"running": "1", "running_lanes": '{"bulk": 1}'}
            await made.renew()
            await until(lambda: registry.worker("w0").busy == 1)
            for _ in range(2):
                await accepted(priority=-1)
            assert (await _refusal(stream, ask(priority=-1))).name == "queue_full"
            for _ in range(2):
                await accepted(**bronze)
            assert (await _refusal(stream, ask(**bronze))).name == "queue_full"
            # Urgent or not: what others have waiting takes no place of this lane.
            for priority in (127, 0):
                await accepted(priority=priority)
            assert (await _refusal(stream, ask())).name == "queue_full"
            lengths = [await valkey.xlen(keys.lane("w0", class_)) for class_ in keys.CLASSES]
            assert lengths == [2, 0, 2, 3]
            await stream.close()

    async def test_tasks_of_other_routers_fill_the_queue_too(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        fields = {"slots": "1"}
        async with mesh(valkey, valkey_server.url, queue_limit=1, poll_s=0.05, worker_fields=fields) as made:
            for _ in range(2):
                await valkey.xadd(keys.lane("w0", "gold"), {"generation": "other"})
            await made.look()
            stream = made.connect()
            assert (await _refusal(stream, ask())).name == "queue_full"
            await stream.close()

    async def test_one_session_goes_to_one_worker_and_others_spread(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        fields = {"slots": "64"}
        async with mesh(valkey, valkey_server.url, workers=3, worker_fields=fields) as made:
            stream = made.connect()
            same = [await stream.first(await stream.open(ask(f"{n}", session="chat"))) for n in range(3)]
            assert len({event.accepted.worker for event in same}) == 1
            other = [await stream.first(await stream.open(ask(f"{n}"))) for n in range(30)]
            assert {event.accepted.worker for event in other} == {"w0", "w1", "w2"}
            await stream.close()

    async def test_a_lost_worker_ends_what_is_relayed_without_a_channel_and_the_books_are_settled(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, reattach_s=0.5) as made:
            stream, worker = made.connect(), made.workers[0]
            generation = await stream.open(ask(durability=common_pb2.DURABILITY_OFF), location=False)
            assert (await stream.first(generation)).accepted.durability == common_pb2.DURABILITY_OFF
            assert not await valkey.exists(keys.response(generation))
            await until(lambda: len(worker.hand.subscribed) == 2)
            worker.hand.push(generation, started(2), token(3, "x"))
            await until(lambda: len(stream.of(generation)) == 3)
            await worker.server.stop()
            await until(lambda: "error" in stream.kinds(generation))
            last = stream.of(generation)[-1]
            assert (_reason(last), last.position, last.error.delivered_until) == ("worker_lost", 4, 3)
            await until(lambda: made.app.in_flight == 0)
            await stream.close()

    async def test_a_fixed_list_of_workers_needs_no_leases(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            address = made.workers[0].server.address
            await made.workers[0].lease.release()
            dead = f"127.0.0.1:{free_port()}"
            fixed = mesh(valkey, valkey_server.url, workers=0, shared={}, workers_list=(address, dead))
            async with fixed as other:
                stream = other.connect()
                event = await stream.first(await stream.open(ask()))
                assert (event.accepted.worker, event.accepted.source) == ("hand", address)
                await stream.close()


class TestGenerate:
    async def test_it_streams_one_generation_and_beats_while_nothing_happens(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, heartbeat_s=0.2) as made:
            hand = made.workers[0].hand
            request = ask()
            request.generation = ""
            call = made.stub.Generate(router_pb2.GenerateRequest(request=request), metadata=made.metadata)
            first = (await call.read()).events[0]
            assert first.accepted.worker == "w0"
            beat = (await call.read()).events[0]
            assert (beat.WhichOneof("event"), beat.position) == ("heartbeat", 0)
            hand.push(first.generation, started(2), token(3, "x"), finished(4))
            rest = [event for event in await _collect_read(call) if not event.HasField("heartbeat")]
            assert [event.position for event in rest] == [2, 3, 4]
            assert (await call.code()) is grpc.StatusCode.OK

    async def test_a_refusal_is_the_status_of_the_call(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            call = made.stub.Generate(router_pb2.GenerateRequest(request=ask(model="x")), metadata=made.metadata)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await _collect(call)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            assert from_rpc_error(refused.value).name == "model_not_found"

    async def test_cancelling_the_call_cancels_a_generation_without_grace(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            request = ask(on_disconnect=common_pb2.ON_DISCONNECT_CANCEL)
            call = made.stub.Generate(router_pb2.GenerateRequest(request=request), metadata=made.metadata)
            generation = (await call.read()).events[0].generation
            call.cancel()
            await until(lambda: generation in made.workers[0].hand.cancelled)

    async def test_the_callers_trace_goes_on_to_the_worker(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            trace = "4bf92f3577b34da6a3ce929d0e0e4736"
            metadata = grpc.aio.Metadata(*made.metadata, ("traceparent", f"00-{trace}-00f067aa0ba902b7-01"))
            call = made.stub.Generate(router_pb2.GenerateRequest(request=ask()), metadata=metadata)
            generation = (await call.read()).events[0].generation
            found = (await request_of(valkey, [generation]))[0]
            assert found is not None
            version, same, span, flags = found[0].traceparent.split("-")
            assert (version, same, flags) == ("00", trace, "01")
            assert span != "00f067aa0ba902b7"
            call.cancel()

    async def test_of_the_callers_baggage_what_is_known_goes_on_to_the_worker(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, shared={"baggage_keys": ("team", "run")}) as made:
            sent = (
                (ask(), grpc.aio.Metadata(*made.metadata, ("baggage", "team=blue;p=1, who=me"))),
                (ask(baggage="who=me,run=7,team=red"), made.metadata),
            )
            for (request, metadata), left in zip(sent, ("team=blue", "run=7,team=red"), strict=True):
                call = made.stub.Generate(router_pb2.GenerateRequest(request=request), metadata=metadata)
                await call.read()
                found = (await request_of(valkey, [request.generation]))[0]
                assert found is not None
                assert found[0].baggage == left
                call.cancel()

    async def test_k1_a_prompt_of_twelve_megabytes_passes_and_a_larger_one_is_told_the_limit(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            large = router_pb2.GenerateRequest(request=ask("x" * 12_000_000))
            call = made.stub.Generate(large, metadata=made.metadata)
            accepted = (await call.read()).events[0]
            found = (await request_of(valkey, [accepted.generation]))[0]
            assert found is not None
            assert len(found[0].messages[0].content) == 12_000_000
            call.cancel()
            too_large = router_pb2.GenerateRequest(request=ask("x" * 17_000_000))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await _collect(made.stub.Generate(too_large, metadata=made.metadata))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            error = from_rpc_error(refused.value)
            assert error.name == "too_large"
            assert "16777216 bytes" in error.message


async def _collect_read(call: Any) -> list[common_pb2.Event]:
    events: list[common_pb2.Event] = []
    while (response := await call.read()) is not grpc.aio.EOF:
        events += response.events
    return events


class TestUnary:
    async def test_models_are_listed(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with mesh(valkey, valkey_server.url, workers=2) as made:
            reply = await made.stub.ListModels(router_pb2.ListModelsRequest(), metadata=made.metadata)
            assert [(m.name, m.workers, m.slots, m.context_tokens) for m in reply.models] == [("m", 2, 8, 4096)]

    async def test_a_generation_is_found_and_cancelled_by_its_tenant_only(
        self, valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
    ) -> None:
        keys_file = tmp_path / "keys.yaml"
        rows = [
            f"  - {{hash: {hashlib.sha256(name.encode()).hexdigest()}, tenant: {name}}}" for name in ("acme", "bolt")
        ]
        keys_file.write_text("keys:\n" + "\n".join(rows), encoding="utf-8")
        shared = {"mesh_token": "secret", "api_keys_file": keys_file}
        async with mesh(valkey, valkey_server.url, shared=shared) as made:
            acme = grpc.aio.Metadata(("authorization", "Bearer acme"))
            bolt = grpc.aio.Metadata(("authorization", "Bearer bolt"))
            request = ask(tenant="bolt")
            call = made.stub.Generate(router_pb2.GenerateRequest(request=request), metadata=acme)
            await call.read()
            found = (await request_of(valkey, [request.generation]))[0]
            assert found is not None
            assert found[0].tenant == "acme", "a client's claim is not believed"
            look = router_pb2.GetGenerationRequest(generation=request.generation, tenant="acme")
            state = await made.stub.GetGeneration(look, metadata=acme)
            assert state.state == router_pb2.GENERATION_STATE_QUEUED
            assert (state.worker, state.source, state.model) == ("w0", made.workers[0].server.address, "m")
            assert len(state.session) == 16
            for method, message in (
                (made.stub.GetGeneration, look),
                (made.stub.Cancel, router_pb2.CancelRequest(generation=request.generation, tenant="acme")),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as unknown:
                    await method(message, metadata=bolt)
                assert from_rpc_error(unknown.value).name == "generation_not_found"
            mine = await made.stub.GetGeneration(look, metadata=made.metadata)
            assert mine.state == state.state, "a mesh peer speaks for the tenant it names"
            connect = ConnectStream(made.stub.Connect(metadata=bolt))
            await connect.cancel(request.generation)
            await asyncio.sleep(0.1)
            assert made.workers[0].hand.cancelled == []
            await connect.close()
            reply = await made.stub.Cancel(router_pb2.CancelRequest(generation=request.generation), metadata=acme)
            assert reply.state == router_pb2.GENERATION_STATE_QUEUED
            await until(lambda: made.workers[0].hand.cancelled == [request.generation])
            with pytest.raises(grpc.aio.AioRpcError) as stranger:
                await made.stub.ListModels(router_pb2.ListModelsRequest())
            assert stranger.value.code() is grpc.StatusCode.UNAUTHENTICATED
            call.cancel()

    async def test_a_cancel_through_another_router_finds_the_worker_by_the_record(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with (
            mesh(valkey, valkey_server.url) as made,
            mesh(valkey, valkey_server.url, workers=0, id="r2") as other,
        ):
            stream = made.connect()
            generation = await stream.open(ask())
            await stream.first(generation)
            await other.stub.Cancel(router_pb2.CancelRequest(generation=generation), metadata=other.metadata)
            await until(lambda: made.workers[0].hand.cancelled == [generation])
            await stream.close()


class TestLife:
    async def test_without_valkey_new_work_goes_straight_to_a_worker_and_strict_work_is_refused(
        self, tmp_path: Path
    ) -> None:
        server = ValkeyServer(tmp_path)
        client = Redis.from_url(server.url)
        try:
            async with mesh(client, server.url, dispatch_timeout_s=0.5, poll_s=0.1) as made:
                stream, hand = made.connect(), made.workers[0].hand
                running = await stream.open(ask("a"), location=False)
                await until(lambda: len(hand.subscribed) == 2)
                server.stop()
                refused = await _refusal(stream, ask("b", durability=common_pb2.DURABILITY_STRICT))
                assert (refused.name, refused.retry_after_s) == ("store_unavailable", 1)
                refused = await _refusal(stream, ask("c", idempotency_key="s", durability=common_pb2.DURABILITY_STRICT))
                assert refused.name == "store_unavailable"
                inline = await stream.open(ask("d"), location=False)
                told = (await stream.first(inline)).accepted
                assert (told.worker, told.durability) == ("w0", common_pb2.DURABILITY_OFF)
                await until(lambda: any(command.HasField("inline_task") for command in hand.commands))
                task = next(command.inline_task for command in hand.commands if command.HasField("inline_task"))
                assert task.request.generation == inline
                assert task.request.durability == common_pb2.DURABILITY_OFF
                assert abs(task.created_ms - time.time() * 1000) < 10_000
                hand.push(inline, started(2), token(3, "x"), finished(4))
                await until(lambda: stream.kinds(inline)[-1] == "finished")
                hand.push(running, started(2), finished(3))
                await until(lambda: stream.kinds(running) == ["accepted", "started", "finished"])
                with pytest.raises(grpc.aio.AioRpcError) as unknown:
                    look = router_pb2.GetGenerationRequest(generation=running)
                    await made.stub.GetGeneration(look, metadata=made.metadata)
                assert from_rpc_error(unknown.value).name == "store_unavailable"
                await stream.close()
        finally:
            await client.aclose()
            server.stop()

    async def test_when_valkey_is_back_with_nothing_new_work_is_durable_again(self, tmp_path: Path) -> None:
        server = ValkeyServer(tmp_path)
        client = Redis.from_url(server.url)
        try:
            async with mesh(
                client, server.url, workers=2, dispatch_timeout_s=0.5, poll_s=0.1, keep_workers_s=0.3
            ) as made:
                stream, hands = made.connect(), {worker.id: worker.hand for worker in made.workers}
                durable = (await stream.first(await stream.open(ask("a")))).accepted
                assert durable.durability == common_pb2.DURABILITY_RELAXED
                server.stop()
                await made.workers[0].server.stop()
                await asyncio.sleep(1.5)
                for text in "bcd":
                    inline = await stream.open(ask(text))
                    told = (await stream.first(inline)).accepted
                    assert told.durability == common_pb2.DURABILITY_OFF
                    assert told.worker == "w1", "a worker that does not answer gets nothing, though no lease says so"
                    look = router_pb2.GetGenerationRequest(generation=inline)
                    known = await made.stub.GetGeneration(look, metadata=made.metadata)
                    assert (known.worker, known.durability) == ("w1", common_pb2.DURABILITY_OFF)
                hand = hands["w1"]
                await until(lambda: sum(command.HasField("inline_task") for command in hand.commands) == 3)
                server = ValkeyServer(tmp_path)
                async with asyncio.timeout(10):
                    while True:
                        await made.workers[1].lease.renew()
                        again = await stream.open(ask("e"))
                        if (await stream.first(again)).accepted.durability == common_pb2.DURABILITY_RELAXED:
                            break
                        await asyncio.sleep(0.1)
                assert await client.exists(keys.response(again))
                await stream.close()
        finally:
            await client.aclose()
            server.stop()

    async def test_l1_a_drain_refuses_new_work_lets_relays_end_and_then_ends_the_streams(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, drain_grace_s=10) as made:
            stream, hand = made.connect(), made.workers[0].hand
            running = await stream.open(ask("a"), location=False)
            await until(lambda: len(hand.subscribed) == 2)
            assert await valkey.exists(keys.lease("router", "router-0"))
            drain = asyncio.get_running_loop().create_task(made.app.drain())
            refused = await _refusal(stream, ask("b"))
            assert (refused.name, refused.retry_after_s) == ("going_away", 1)
            channel = open_channel(made.app.address, made.shared)
            health: Any = health_pb2_grpc.HealthStub(channel)
            status = await health.Check(health_pb2.HealthCheckRequest(service="streamway.v1.RouterService"))
            assert status.status == health_pb2.HealthCheckResponse.NOT_SERVING
            await channel.close()
            assert await valkey.hget(keys.lease("router", "router-0"), "draining") == b"1"
            assert not drain.done()
            hand.push(running, started(2), finished(3))
            await until(lambda: stream.ended)
            assert stream.kinds(running) == ["accepted", "started", "finished"]
            await drain
            assert not await valkey.exists(keys.lease("router", "router-0"))
            await stream.close()

    async def test_a_relay_that_outlives_the_drain_is_told_and_only_what_has_no_channel_is_cancelled(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, drain_grace_s=0.2) as made:
            stream, hand = made.connect(), made.workers[0].hand
            relayed = await stream.open(ask("a", durability=common_pb2.DURABILITY_OFF), location=False)
            kept = await stream.open(ask("b"), location=False)
            located = await stream.open(ask("c"))
            await stream.first(located)
            await until(lambda: len(hand.subscribed) == 5)
            await made.app.drain()
            await until(lambda: stream.ended)
            assert [_reason(stream.of(each)[-1]) for each in (relayed, kept)] == ["going_away"] * 2
            await until(lambda: relayed in hand.cancelled)
            assert hand.cancelled == [relayed]
            await stream.close()

    async def test_metrics_say_what_was_decided(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with mesh(valkey, valkey_server.url) as made:
            stream = made.connect()
            await stream.first(await stream.open(ask()))
            await _refusal(stream, ask(model="x"))
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{made.app.operations_address}/metrics") as response,
            ):
                text = await response.text()
            assert 'streamway_router_decisions_total{branch="home",reason="first"} 1.0' in text
            assert 'streamway_router_admissions_total{outcome="admitted"} 1.0' in text
            assert 'streamway_router_admissions_total{outcome="model_not_found"} 1.0' in text
            assert 'streamway_router_workers{state="ready"} 1.0' in text
            assert "streamway_router_generations 1.0" in text
            assert "streamway_router_dispatch_seconds_count 1.0" in text
            await stream.close()

    async def test_an_error_has_one_error_info_and_a_retry_time(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with mesh(valkey, valkey_server.url, max_generations=1) as made:
            stream = made.connect()
            await stream.first(await stream.open(ask("a")))
            event = await stream.first(await stream.open(ask("b")))
            infos, retries = [], []
            for detail in event.error.status.details:
                info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
                if detail.Unpack(info):
                    infos.append(info.reason)
                elif detail.Unpack(retry):
                    retries.append(retry.retry_delay.seconds)
            assert (infos, retries) == (["too_many_generations"], [1])
            await stream.close()


async def test_a_worker_that_returns_within_the_time_is_read_on(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream, worker = made.connect(), made.workers[0]
        generation = await stream.open(ask(), location=False)
        await until(lambda: len(worker.hand.subscribed) == 2)
        worker.hand.push(generation, started(2), token(3, "a"))
        await until(lambda: len(stream.of(generation)) == 3)
        port = int(worker.server.address.rpartition(":")[2])
        await worker.server.stop()
        worker.server = HandServer(worker.hand, made.shared, port)
        await worker.server.start()
        worker.hand.push(generation, token(4, "b"), finished(5))
        await until(lambda: "finished" in stream.kinds(generation))
        assert [event.position for event in stream.of(generation)] == [1, 2, 3, 4, 5]
        await until(lambda: made.app.in_flight == 0)
        await stream.close()
