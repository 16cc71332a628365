"""Single-flight at a router: a real store, workers that write real channels, followers that read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis import Redis as ValkeyClient
from redis.asyncio import Redis

from streamway.errors import from_status
from streamway.lanes import keep_records
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.journaling_worker import words
from tests.support.router_mesh import Mesh, ask, mesh, until
from tests.support.takeover_mesh import takeover_mesh, text_of
from tests.support.valkey_server import ValkeyServer


def cold(text: str = "hello", **fields: Any) -> common_pb2.GenerationRequest:
    request = ask(text, **fields)
    request.sampling.temperature = 0
    return request


async def test_h3_many_identical_requests_are_one_engine_call_and_each_has_the_whole_answer(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with takeover_mesh(valkey_server.url, workers=1, pace_s=0.03) as ((made,), workers):
        stream = made.connect()
        generations = [await stream.open(cold(tenant="acme"), location=False) for _ in range(30)]
        other = await stream.open(cold(tenant="bolt"), location=False)
        for generation in [*generations, other]:
            await until(lambda generation=generation: "finished" in stream.kinds(generation), 30)
            assert text_of(stream.of(generation)) == words(20)
        assert len(workers[0].began) == 2, "one for each tenant"
        led = [g for g in generations if not stream.of(g)[0].accepted.follows]
        assert len(led) == 1
        told = stream.of(generations[-1])[0].accepted
        assert (told.follows, told.route, told.attached_to) == (led[0], "joined", "")

        call = made.stub.Resume(
            router_pb2.ResumeRequest(generation=generations[-1], tenant="acme"), metadata=made.metadata
        )
        events = [event async for response in call for event in response.events]
        assert text_of(events) == words(20), "a follower is resumed by its own id"
        call = made.stub.Resume(
            router_pb2.ResumeRequest(generation=generations[-1], tenant="bolt"), metadata=made.metadata
        )
        with pytest.raises(Exception, match="there is no generation"):
            _ = [event async for response in call for event in response.events]
        await stream.close()


async def test_d1_followers_follow_a_takeover_of_their_leader(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with takeover_mesh(valkey_server.url, workers=2, pace_s=0.05) as ((made,), workers):
        stream = made.connect()
        generations = [await stream.open(cold(), location=False) for _ in range(4)]
        for generation in generations:
            await until(lambda generation=generation: "token" in stream.kinds(generation), 20)
        leader = stream.of(generations[-1])[0].accepted.follows
        await next(worker for worker in workers if (leader, 1) in worker.began).stop()
        for generation in generations:
            await until(lambda generation=generation: "finished" in stream.kinds(generation), 30)
            assert text_of(stream.of(generation)) == words(20)
            assert "taken_over" in stream.kinds(generation)
        await stream.close()


async def test_a_cancelled_leader_and_a_cancelled_follower_leave_and_the_last_one_stops_the_engine(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream, hand = made.connect(), made.workers[0].hand
        leader, one, two = [await stream.open(cold()) for _ in range(3)]
        for generation in (leader, one, two):
            assert (await stream.first(generation)).accepted.shared
        await stream.cancel(leader)
        await stream.cancel(one)
        asked = router_pb2.CancelRequest(generation=one)
        await made.stub.Cancel(asked, metadata=made.metadata)
        assert await made.stub.GetGeneration(router_pb2.GetGenerationRequest(generation=two), metadata=made.metadata)
        assert hand.cancelled == []
        await stream.cancel(two)
        await until(lambda: hand.cancelled == [leader])
        assert await valkey.xlen(keys.lane("w0", "gold")) == 1
        late = await stream.open(cold())
        assert (await stream.first(late)).accepted.follows == "", "what is being aborted is not joined"
        await stream.close()


async def test_what_another_router_is_told_to_cancel_goes_on_for_its_followers(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        mesh(valkey, valkey_server.url) as made,
        mesh(valkey, valkey_server.url, workers=0, id="router-1") as second,
    ):
        stream, hand = made.connect(), made.workers[0].hand
        leader = await stream.open(cold())
        await stream.first(leader)
        follower = await stream.open(cold())
        assert (await stream.first(follower)).accepted.follows == leader
        for generation in (leader, follower):
            await second.stub.Cancel(router_pb2.CancelRequest(generation=generation), metadata=second.metadata)
        alone = await stream.open(cold("another"))
        await stream.first(alone)
        await second.stub.Cancel(router_pb2.CancelRequest(generation=alone), metadata=second.metadata)
        await until(lambda: hand.cancelled == [alone])
        await stream.close()


async def test_a_refused_first_one_leaves_the_way_to_the_next(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, worker_fields={"draining": "1"}) as made:
        stream = made.connect()
        generations = [await stream.open(cold()) for _ in range(5)]
        for generation in generations:
            assert from_status((await stream.first(generation)).error.status).name == "no_workers"
        await stream.close()


async def test_followers_cost_a_request_and_neither_slot_nor_tokens(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Any
) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: {acme: {tier: gold, concurrency: 2, requests_per_minute: 100}}\nanonymous: acme")
    async with mesh(valkey, valkey_server.url, shared={"tenants_file": path}) as made:
        stream = made.connect()
        for number in range(6):
            told = await stream.first(await stream.open(cold(tenant="acme")))
            assert bool(told.accepted.follows) is (number > 0)
            assert told.accepted.allowance.requests.remaining == 99 - number
        await stream.close()


async def test_none_follow_where_that_is_switched_off(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, flight_followers=0) as made:
        stream = made.connect()
        for _ in range(3):
            told = (await stream.first(await stream.open(cold()))).accepted
            assert (told.follows, told.shared) == ("", False)
        await stream.close()


async def test_what_falls_back_to_another_model_shares_a_call_of_that_one(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "streamway.yaml"
    path.write_text("models: {fallbacks: {gone: [m]}}")
    monkeypatch.setenv("STREAMWAY_CONFIG", str(path))
    async with mesh(valkey, valkey_server.url) as made:
        stream = made.connect()
        one = await stream.open(cold(model="gone"))
        assert (await stream.first(one)).accepted.model == "m"
        two = await stream.open(cold(model="m"))
        assert (await stream.first(two)).accepted.follows == one
        await stream.close()


# However late a busy machine is: these are about who leads, not about when a router stops waiting to hear of it.
PATIENT: dict[str, Any] = {"flight_share_ms": 5_000}


@asynccontextmanager
async def two_routers(valkey: Redis, url: str) -> AsyncIterator[tuple[Mesh, Mesh]]:
    async with (
        mesh(valkey, url, **PATIENT) as first,
        mesh(valkey, url, workers=0, id="router-1", **PATIENT) as second,
        asyncio.TaskGroup() as group,
    ):

        async def renew() -> None:
            while True:
                await asyncio.sleep(0.5)
                await first.renew()

        renewing = group.create_task(renew())
        yield first, second
        renewing.cancel()


async def flights_in(valkey: Redis) -> int:
    return len(await valkey.keys("sw:flight:*"))


async def test_h3_identical_requests_at_two_routers_are_one_engine_call_and_each_has_the_whole_answer(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with takeover_mesh(valkey_server.url, workers=1, routers=2, pace_s=0.03, **PATIENT) as (routers, workers):
        streams = [made.connect() for made in routers]
        opened = [(stream, await stream.open(cold(), location=False)) for _ in range(5) for stream in streams]
        for stream, generation in opened:
            await until(lambda stream=stream, generation=generation: "finished" in stream.kinds(generation), 30)
            assert text_of(stream.of(generation)) == words(20)
        assert len(workers[0].began) == 1
        followed = {stream.of(generation)[0].accepted.follows for stream, generation in opened}
        assert len(followed) == 2, "one leads, and all others follow it"
        await until(lambda: not any(len(made.app._made().books.flights) for made in routers), 10)
        assert await flights_in(valkey) == 0, "an answer that has ended is followed by nobody"
        for stream in streams:
            await stream.close()


async def test_a_cancelled_leader_leaves_the_followers_of_other_routers_and_their_last_one_stops_the_engine(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with two_routers(valkey, valkey_server.url) as (first, second):
        here, there, hand = first.connect(), second.connect(), first.workers[0].hand
        leader = await here.open(cold())
        await here.first(leader)
        one, late = await there.open(cold()), await there.open(cold())
        for generation in (one, late):
            told = (await there.first(generation)).accepted
            assert (told.follows, told.route, told.shared) == (leader, "joined", True)
        await here.cancel(leader)
        await until(lambda: _holders(valkey_server) == {b"router-1"}, 10)
        assert hand.cancelled == []
        again = await here.open(cold())
        assert (await here.first(again)).accepted.follows == leader, "it runs for others, so it is joined again"
        await there.cancel(one)
        await there.cancel(late)
        await until(lambda: _holders(valkey_server) == {b"router-0"}, 10)
        assert hand.cancelled == []
        await here.cancel(again)
        await until(lambda: hand.cancelled == [leader], 10)
        assert await flights_in(valkey) == 0
        for stream in (here, there):
            await stream.close()


async def test_what_a_flight_does_not_suit_runs_for_itself_and_leaves_it_as_it_was(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with two_routers(valkey, valkey_server.url) as (first, second):
        here, there, hand = first.connect(), second.connect(), first.workers[0].hand
        leader = await here.open(cold())
        await here.first(leader)
        urgent = await there.open(cold(priority=5))
        assert (await there.first(urgent)).accepted.follows == ""
        await until(lambda: _holders(valkey_server) == {b"router-0"}, 10)
        await there.cancel(urgent)
        await until(lambda: hand.cancelled == [urgent], 10)
        follower = await there.open(cold())
        assert (await there.first(follower)).accepted.follows == leader
        for stream in (here, there):
            await stream.close()


async def test_who_has_seen_a_leader_fail_leads_at_another_router_and_the_next_follow_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with two_routers(valkey, valkey_server.url) as (first, second):
        here, there = first.connect(), second.connect()
        leader = await here.open(cold())
        await here.first(leader)
        request = cold()
        again = router_pb2.Open(request=request, delivery=router_pb2.Delivery.DELIVERY_LOCATION, failed_leader=leader)
        await there.send(router_pb2.ConnectCommand(open=again))
        assert (await there.first(request.generation)).accepted.follows == ""
        next_ = await there.open(cold())
        assert (await there.first(next_)).accepted.follows == request.generation
        for stream in (here, there):
            await stream.close()


async def test_a_leader_that_has_failed_meanwhile_is_not_followed(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with two_routers(valkey, valkey_server.url) as (first, second):
        here, there = first.connect(), second.connect()
        leader = await here.open(cold())
        await here.first(leader)
        # As its worker writes it; its router has not heard of it, or is dead.
        await valkey.hset(keys.generation(leader), "state", "failed")
        alone = await there.open(cold())
        assert (await there.first(alone)).accepted.follows == ""
        for stream in (here, there):
            await stream.close()


async def test_a_refused_first_one_leaves_nothing_behind_and_what_does_not_qualify_asks_nothing(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, worker_fields={"draining": "1"}, **PATIENT) as made:
        stream = made.connect()
        assert (await stream.first(await stream.open(cold()))).HasField("error")
        await stream.close()

        def left() -> bool:
            with ValkeyClient.from_url(valkey_server.url) as client:
                return not client.keys("sw:flight:*")

        await until(left, 10)
    async with mesh(valkey, valkey_server.url, **PATIENT) as made:
        stream = made.connect()
        assert not (await stream.first(await stream.open(ask()))).accepted.shared
        assert await flights_in(valkey) == 0
        await stream.close()


async def test_routers_that_do_not_ask_have_flights_of_their_own(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with (
        mesh(valkey, valkey_server.url, flight_share_ms=0) as first,
        mesh(valkey, valkey_server.url, workers=0, id="router-1", flight_share_ms=0) as second,
    ):
        hand = first.workers[0].hand
        opened = []
        for made in (first, second):
            stream = made.connect()
            leader, follower = await stream.open(cold()), await stream.open(cold())
            assert (await stream.first(leader)).accepted.follows == ""
            assert (await stream.first(follower)).accepted.follows == leader
            opened.append((stream, leader, follower))
        assert await flights_in(valkey) == 0
        for stream, leader, follower in opened:
            await stream.cancel(leader)
            await stream.cancel(follower)
            await until(lambda leader=leader: leader in hand.cancelled, 10)
            await stream.close()


async def test_the_worker_that_keeps_a_leaders_record_keeps_those_of_its_followers(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream = made.connect()
        leader, follower = await stream.open(cold()), await stream.open(cold())
        assert (await stream.first(follower)).accepted.follows == leader
        kept = [keys.generation(leader), keys.generation(follower), keys.followers(leader)]
        for key in kept:
            assert await valkey.pexpire(key, 30_000)
        # What a worker does for all that it runs, every ten seconds.
        await keep_records(valkey, [leader])
        for key in kept:
            assert await valkey.pttl(key) > 500_000
        await stream.close()


def _holders(server: ValkeyServer) -> set[bytes]:
    with ValkeyClient.from_url(server.url) as client:
        return {router for key in client.keys("sw:flight:*:holders") for router in client.zrange(key, 0, -1)}
