"""Where sessions go: several routers, several strategies. Real gRPC, a real Valkey, workers written by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from services.router.core.ring import Ring
from streamway.errors import from_status
from streamway.lanes import request_of
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.support.router_mesh import Mesh, Worker, ask, mesh, until
from tests.support.valkey_server import ValkeyServer

# About 2,000 tokens: a quarter of a second of prefill.
LONG = "x" * 8000


async def _opened(made: Mesh, request: common_pb2.GenerationRequest) -> common_pb2.Accepted:
    stream = made.connect()
    event = await stream.first(await stream.open(request))
    await stream.close()
    assert event.HasField("accepted"), event
    return event.accepted


async def _drains(made: Mesh, worker: str, drains: bool, *others: Mesh) -> None:
    """Has a worker say so, and waits until the routers know."""
    hand = next(hand for hand in made.workers if hand.id == worker)
    hand.fields["draining"] = "1" if drains else "0"
    await hand.lease.renew()
    for each in (made, *others):
        registry = each.app._made().registry
        await until(lambda registry=registry: registry.worker(worker).draining is drains)


async def test_another_router_finds_a_spilled_session_where_the_first_one_put_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        mesh(valkey, valkey_server.url, workers=3, poll_s=0.05) as first,
        mesh(valkey, valkey_server.url, workers=0, poll_s=0.05, id="router-1") as second,
        mesh(valkey, valkey_server.url, workers=0, poll_s=0.05, id="router-2", session_recall_ms=0) as forgetful,
    ):
        home = (await _opened(first, ask("hello", session="s", tenant="t"))).worker
        key = await _key(first)
        assert not await valkey.exists(key), "nothing is noted of a session that is at home"
        await _drains(first, home, True, second, forgetful)
        moved = await _opened(first, ask(LONG, session="s", tenant="t"))
        assert moved.route == "moved"
        assert moved.worker != home
        await _drains(first, home, False, second, forgetful)

        kept = await _opened(second, ask(LONG, session="s", tenant="t"))
        assert (kept.route, kept.worker) == ("spill", moved.worker)
        assert 0 < await valkey.pttl(key) <= 600_000
        unaware = await _opened(forgetful, ask(LONG, session="s", tenant="t"))
        assert (unaware.route, unaware.worker) == ("home", home)


async def _key(made: Mesh) -> str:
    # The key that a client is told for its session.
    accepted = await _opened(made, ask("hello", session="s", tenant="t"))
    return keys.session("t", accepted.session)


async def test_a_session_that_came_home_is_noted_as_home(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, poll_s=0.05, walk_home_ms=1_000_000) as made:
        home = (await _opened(made, ask(LONG, session="s", tenant="t"))).worker
        await _drains(made, home, True)
        assert (await _opened(made, ask(LONG, session="s", tenant="t"))).route == "moved"
        await _drains(made, home, False)
        back = await _opened(made, ask(LONG, session="s", tenant="t"))
        assert (back.route, back.worker) == ("home", home)
        noted = await valkey.hget(keys.session("t", back.session), "place:m")  # type: ignore[misc]
        assert noted is not None
        assert noted.decode().split()[:2] == [home, home]


async def test_a_note_that_is_none_does_no_harm(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        for number, wrong in enumerate(["", "a b", "a b c d", "a b 5 99999999999999999999", "w9 w0 5 0"]):
            session = f"{number:016x}"
            await valkey.hset(keys.session("", session), "place:m", wrong)  # type: ignore[misc]
            assert (await _opened(made, ask("hello", session=session))).route == "home"
        await valkey.set(keys.session("", "f" * 16), "no hash")
        assert (await _opened(made, ask("hello", session="f" * 16))).route == "home"


async def test_what_a_request_counts_with_is_the_routers_to_say(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        counted = []
        for prompt in (LONG, LONG + "and more " * 100):
            request = ask(prompt, session="s", load_tokens=4_000_000_000)
            request.limits.max_tokens = 10
            await _opened(made, request)
            found = (await request_of(valkey, [request.generation]))[0]
            assert found is not None
            counted.append(found[0].load_tokens)
        assert counted[0] == 2001 + 10
        assert counted[1] == 225 + 10 - 10, "the first turn's prompt and its answer are in KV"


@pytest.mark.parametrize(
    ("strategy", "routes"),
    [
        ("ring", {"home"}),
        ("rendezvous", {"home"}),
        ("prefix", {"no_key", "home"}),
        ("least_loaded", {"no_key"}),
    ],
)
async def test_each_strategy_says_where_its_worker_stands(
    strategy: str, routes: set[str], valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=3, strategy=strategy) as made:
        told = [await _opened(made, ask(LONG + str(turn), session="s")) for turn in range(3)]
        assert {accepted.route for accepted in told} == routes
        workers = {accepted.worker for accepted in told}
        assert len(workers) == (3 if strategy == "least_loaded" else 1)


async def test_e3_while_reports_are_frozen_two_hundred_requests_spread_within_the_bound_and_it_shows(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    # Leases are renewed and say the same all the time.
    frozen = {"slots": "64", "reported_ms": str(int(time.time() * 1000))}
    options: dict[str, Any] = {"poll_s": 0.05, "stale_report_s": 0.5, "queue_limit": 1000}
    async with mesh(valkey, valkey_server.url, workers=4, worker_fields=frozen, **options) as made:
        stream = made.connect()
        asked: Counter[str] = Counter()
        for number in range(200):
            if number % 20 == 0:
                await made.renew()
            event = await stream.first(await stream.open(ask("x" * 400, session=f"s{number}")))
            asked[event.accepted.worker] += 1
        # A quarter more than the mean, and the one that was placed last.
        assert max(asked.values()) <= 1.25 * 200 / 4 + 1
        assert len(asked) == 4
        registry = made.app._metrics_registry
        async with asyncio.timeout(20):
            while registry.get_sample_value("streamway_router_stale_reports") != 4:
                await made.renew()
                await asyncio.sleep(0.05)
        assert (registry.get_sample_value("streamway_router_report_age_seconds") or 0) > 0.5
        await stream.close()


@pytest.mark.parametrize("said", ["-1e300", "0", "inf", "1e300", "nan", "much"])
async def test_a_worker_that_lies_about_its_load_neither_gets_everything_nor_stops_the_router(
    valkey: Redis, valkey_server: ValkeyServer, said: str
) -> None:
    """It says that it is idle while it is not, that it is drowned while it is idle, or nothing that means anything."""
    async with mesh(valkey, valkey_server.url, workers=2, worker_fields={"slots": "64"}, queue_limit=1000) as made:
        liar = made.workers[0]
        liar.fields["load_tokens"] = said
        stream, asked = made.connect(), Counter[str]()
        for number in range(40):
            if number % 10 == 0:
                await made.renew()
                await made.look()
            event = await stream.first(await stream.open(ask("x" * 400, session=f"s{number}")))
            assert event.HasField("accepted"), event
            asked[event.accepted.worker] += 1
        # Believed or not, it gets no more than the bound and one; the honest one is there for the rest.
        assert asked["w0"] <= 1.25 * 40 / 2 + 1
        assert asked["w0"] + asked["w1"] == 40
        await stream.close()


async def test_a_new_worker_is_told_of_the_sessions_that_will_come_to_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    roomy = {"slots": "200"}
    async with (
        mesh(valkey, valkey_server.url, workers=2, poll_s=0.05, worker_fields=roomy) as made,
        AsyncExitStack() as stack,
    ):
        sessions = [
            (await _opened(made, ask("hello", session=str(number), tenant="t"))).session for number in range(60)
        ]
        blocking = Redis.from_url(valkey_server.url, single_connection_client=True)
        stack.push_async_callback(blocking.aclose)
        new = Worker(valkey, blocking, "new", made.shared, began_ms="5", **roomy)
        await new.start()
        stack.push_async_callback(new.stop)

        async def told() -> list[list[str]]:
            return [json.loads(member) for member in await valkey.zrange(keys.arrivals("new"), 0, -1)]

        async with asyncio.timeout(10):
            while not await told():
                await asyncio.sleep(0.02)
        coming = await told()
        ring = Ring({"w0", "w1", "new"})
        assert {tuple(one) for one in coming} == {
            ("t", "m", session) for session in sessions if next(ring.walk(session)) == "new"
        }
        assert 0 < await valkey.pttl(keys.arrivals("new")) <= 600_000
        # It takes them out; the same life is not told again, the next one is.
        await valkey.delete(keys.arrivals("new"))
        await asyncio.sleep(0.3)
        assert not await told()
        new.fields["began_ms"] = "6"
        await new.lease.renew()
        async with asyncio.timeout(10):
            while not await told():
                await asyncio.sleep(0.02)
        assert sorted(await told()) == sorted(coming)


async def test_where_the_kv_cache_is_full_nothing_is_placed(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, poll_s=0.05) as made:
        home = (await _opened(made, ask(session="s"))).worker
        await _says(made, home, "1")
        elsewhere = await _opened(made, ask(session="s"))
        assert (elsewhere.route, elsewhere.worker != home) == ("spill", True)
        await _says(made, elsewhere.worker, "1")
        stream = made.connect()
        refused = await stream.first(await stream.open(ask(session="s")))
        assert from_status(refused.error.status).name == "queue_full"
        await stream.close()
        await _says(made, home, "0")
        assert (await _opened(made, ask(session="s"))).worker == home


async def _says(made: Mesh, worker: str, full: str) -> None:
    """Has a worker say whether its KV cache is full, and waits until the router knows."""
    hand = next(hand for hand in made.workers if hand.id == worker)
    hand.fields["kv_full"] = full
    await hand.lease.renew()
    registry = made.app._made().registry
    await until(lambda: registry.worker(worker).kv_full is (full == "1"), 20)
