"""Breakers in a real router: fed by the ends that workers tell, obeyed by the strategy, shared through a real Valkey."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from prometheus_client import generate_latest
from redis.asyncio import Redis

from services.router.core.breaker import State
from services.router.core.breakers import Spot, Transition
from streamway.errors import Cancelled, EngineFailed, EventsExpired, StreamwayError, from_status, to_status
from streamway.errors.catalogue import ContextLengthExceeded
from streamway.lanes import give_away
from streamway.tenancy import TierName
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.support.inference_service import failed, finished
from tests.support.router_mesh import ConnectStream, Mesh, ask, mesh, until
from tests.support.valkey_server import ValkeyServer

GOLD = TierName.GOLD


async def _end(made: Mesh, stream: ConnectStream, session: str, error: StreamwayError | None) -> common_pb2.Accepted:
    """Has one generation run and end."""
    await made.renew()
    request = ask(session=session)
    event = await stream.first(await stream.open(request))
    assert event.HasField("accepted"), event
    hand = next(worker.hand for worker in made.workers if worker.id == event.accepted.worker)
    if error is None:
        hand.push(request.generation, finished(2))
    else:
        failed = common_pb2.Error(status=to_status(error))
        hand.push(request.generation, common_pb2.Event(generation=request.generation, position=2, error=failed))
    await until(lambda: made.app.in_flight == 0)
    return event.accepted


async def _break(made: Mesh, stream: ConnectStream, worker: str, error: StreamwayError) -> list[str]:
    """Has generations at one worker fail until its breaker opens. Returns the sessions that live there."""
    at_home = []
    for number in range(200):
        session = f"s{number}"
        accepted = await _end(made, stream, session, None)
        if accepted.worker == worker:
            at_home.append(session)
        if len(at_home) == 5:
            break
    for number in range(100):
        if _state(made, worker) is State.OPEN:
            return at_home
        await _end(made, stream, at_home[number % 5], error)
    return []


def _state(made: Mesh, worker: str) -> State:
    return made.app._made().books._breakers.state(worker, "m", GOLD)


async def test_d5_a_worker_that_fails_gets_nothing_until_probes_have_shown_that_it_is_well(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, queue_limit=10_000, breaker_open_s=1.0) as made:
        stream = made.connect()
        sessions = await _break(made, stream, "w0", EngineFailed("w0", "the engine closed the connection"))
        assert sessions, "it never opened"
        moved = await _end(made, stream, sessions[0], None)
        assert (moved.worker, moved.route) == ("w1", "moved")
        shown = generate_latest(made.app._metrics_registry).decode()
        assert 'streamway_router_breakers{model="m",tier="gold",worker="w0"} 1.0' in shown
        assert 'streamway_router_decisions_total{branch="moved",reason="closed"}' in shown
        await until(lambda: _state(made, "w0") is State.HALF_OPEN, 10)
        # Its sessions go there again, a few at first.
        async with asyncio.timeout(20):
            while _state(made, "w0") is not State.CLOSED:
                for session in sessions:
                    await _end(made, stream, session, None)


async def test_an_opened_breaker_is_known_to_the_other_routers_within_a_second(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        mesh(valkey, valkey_server.url, workers=2, queue_limit=10_000) as first,
        mesh(valkey, valkey_server.url, workers=0, id="router-1") as second,
    ):
        stream = first.connect()
        assert await _break(first, stream, "w0", EngineFailed("w0", "the engine closed the connection"))
        # Twice a second; more is a loaded machine's.
        await until(lambda: _state(second, "w0") is State.OPEN, 5)
        assert _state(second, "w1") is State.CLOSED
        assert 0 < await valkey.pttl(keys.breaker("m")) <= 2 * 144_000
        shown = generate_latest(second.app._metrics_registry).decode()
        assert 'after="open",before="closed",by="others",tier="gold"' in shown


async def test_a_breaker_that_one_router_has_closed_is_closed_everywhere_within_a_second(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    options: dict[str, Any] = {"queue_limit": 10_000, "breaker_open_s": 3.0}
    async with (
        mesh(valkey, valkey_server.url, workers=2, **options) as first,
        mesh(valkey, valkey_server.url, workers=0, id="router-1", **options) as second,
    ):
        stream = first.connect()
        sessions = await _break(first, stream, "w0", EngineFailed("w0", "the engine closed the connection"))
        assert sessions, "it never opened"
        await until(lambda: _state(second, "w0") is not State.CLOSED, 10)
        async with asyncio.timeout(30):
            while _state(first, "w0") is not State.CLOSED:
                for session in sessions:
                    await _end(first, stream, session, None)
        # The second has sent no probe. Twice a second; more is a loaded machine's.
        await until(lambda: _state(second, "w0") is State.CLOSED, 10)
        shown = generate_latest(second.app._metrics_registry).decode()
        assert 'after="closed"' in shown
        assert 'streamway_router_breakers{model="m",tier="gold",worker="w0"} 0.0' in shown


async def test_an_old_closing_does_not_close_what_opened_after_it_and_no_closing_hides_an_opening(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=1) as made:
        board = made.app._made().books._breakers
        await valkey.hset(keys.breaker("m"), "w0 gold", "-1764442009456 3")
        await board.round()
        board._breakers.learn(Spot("w0", "m", GOLD), 1, 60.0, time.monotonic())
        await board.round()
        assert _state(made, "w0") is State.OPEN, "it was read before this opened"
        await valkey.hset(keys.breaker("m"), "w0 gold", "-1764442019999 1")
        await board.round()
        assert _state(made, "w0") is State.CLOSED
        await valkey.hset(keys.breaker("m"), "w0 gold", "1764442029999 2")
        board._share(Transition(Spot("w0", "m", GOLD), State.HALF_OPEN, State.CLOSED, 1, 0.0, learned=False))
        await board.round()
        assert await valkey.hget(keys.breaker("m"), "w0 gold") == b"1764442029999 2"


async def test_notes_that_are_none_of_ours_and_workers_that_are_gone_do_no_harm(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    await valkey.hset(
        keys.breaker("m"),
        mapping={"w0": "1", "w0 gold": "x y", "w9 gold": "9999999999999 1", "w0 lead": "9999999999999 1"},
    )
    async with mesh(valkey, valkey_server.url) as made:
        await made.app._made().books._breakers.round()
        assert _state(made, "w0") is State.CLOSED
        assert (await _end(made, made.connect(), "s", None)).worker == "w0"


async def test_a_worker_that_left_its_work_to_another_since_its_engine_failed_has_failed(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, queue_limit=10_000) as made:
        assert await _break(made, made.connect(), "w0", EventsExpired("g", moved="engine_failed"))


async def test_the_second_end_of_what_was_moved_counts_where_it_went_and_opens_that_breaker(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, queue_limit=10_000) as made:
        stream = made.connect()
        first, second = "w0", "w1"
        for number in range(200):
            if _state(made, second) is State.OPEN:
                break
            await made.renew()
            request = ask(session=f"s{number}")
            accepted = (await stream.first(await stream.open(request))).accepted
            if accepted.worker != first:
                made.workers[1].hand.push(request.generation, finished(2))
                continue
            # What no breaker counts: a drain sends it on, and there the engine is broken.
            await give_away(valkey, request.generation, first, second)
            made.workers[0].hand.push(request.generation, failed(2, EventsExpired("g", moved="going_away")))
            made.workers[1].hand.push(request.generation, failed(3, EngineFailed(second, "broken")))
            await until(lambda: not made.app._made().books.moved)
        assert _state(made, second) is State.OPEN
        assert _state(made, first) is State.CLOSED
        assert made.judged(first) == (0, 0)


async def test_what_is_moved_and_found_nowhere_counts_nowhere_and_is_not_followed_for_ever(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, takeover_wait_s=0.5) as made:
        stream = made.connect()
        request = ask()
        await stream.first(await stream.open(request))
        made.workers[0].hand.push(request.generation, failed(2, EventsExpired("g", moved="going_away")))
        await until(lambda: made.app.in_flight == 0)
        await until(lambda: not made.app._made().books.moved)
        assert made.judged("w0") == (0, 0)


async def test_d3_a_thousand_bad_requests_cancels_and_refusals_open_no_breaker(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=1, queue_limit=8, poll_s=0.05) as made:
        stream = made.connect()
        registry = made.app._made().registry
        for _ in range(30):
            for error in (Cancelled("the client"), ContextLengthExceeded("9 of 8 tokens")):
                await _end(made, stream, "", error)
                for class_ in keys.CLASSES:  # nobody reads them
                    await valkey.xtrim(keys.lane("w0", class_), 0)
                await until(lambda: bool(registry.all()) and registry.tasks(registry.all()[0]) == 0)
        for _ in range(12):
            await made.renew()
            request = ask()
            assert (await stream.first(await stream.open(request))).HasField("accepted")
        invalid = [ask(priority=1000) for _ in range(470)]
        refused = [ask() for _ in range(470)]
        for number, request in enumerate([*invalid, *refused]):
            if number % 50 == 0:
                await made.renew()
            await stream.open(request)
        await until(lambda: all(stream.of(request.generation) for request in [*invalid, *refused]), 60)
        reasons = {from_status(stream.of(one.generation)[0].error.status).name for one in [*invalid, *refused]}
        assert reasons == {"invalid_argument", "queue_full"}
        assert _state(made, "w0") is State.CLOSED
        shown = generate_latest(made.app._metrics_registry).decode()
        assert "streamway_router_breaker_transitions_total{" not in shown
        assert 'streamway_router_outcomes_total{outcome="nothing"} 60.0' in shown
