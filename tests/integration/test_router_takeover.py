"""Workers that die: their work goes on elsewhere, and whoever reads it sees one text."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from streamway.attach import AttachPool
from streamway.errors import WorkerLost, from_rpc_error, from_status
from streamway.following import GenerationReader, Located, Place, ReaderPorts
from streamway.journal import Cursor
from streamway.lanes.dead import dead_models, list_dead, retry_dead
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from tests.support.journaling_worker import JournalingWorker, words
from tests.support.router_mesh import Mesh, ask, until
from tests.support.takeover_mesh import ranges_of, takeover_mesh, text_of
from tests.support.valkey_server import ValkeyServer


def _kinds(events: list[common_pb2.Event]) -> list[str | None]:
    return [kind for event in events if (kind := event.WhichOneof("event")) != "token"]


def _of(workers: list[JournalingWorker], name: str) -> tuple[JournalingWorker, JournalingWorker]:
    """That one, and another."""
    return next(w for w in workers if w.id == name), next(w for w in workers if w.id != name)


def _whole(events: list[common_pb2.Event], tokens: int) -> None:
    assert text_of(events) == words(tokens)
    covered = ranges_of(events)
    assert covered == list(range(1, covered[-1] + 1)), "each position once, in order"


@pytest.mark.parametrize("at", [0, 1, 7, 19])
async def test_d1_a_relayed_stream_goes_on_after_its_worker_was_killed(
    valkey: Redis, valkey_server: ValkeyServer, at: int
) -> None:
    async with takeover_mesh(valkey_server.url, pace_s=0.05) as ((made,), workers):
        stream = made.connect()
        generation = await stream.open(ask(), location=False)
        lost, other = _of(workers, (await stream.first(generation)).accepted.worker)
        await until(lambda: text_of(stream.of(generation)).count(" ") >= at)
        began = time.monotonic()
        await lost.stop()
        shown = len(stream.of(generation))
        await until(lambda: len(stream.of(generation)) > shown, 10)
        assert time.monotonic() - began < 6
        await until(lambda: "finished" in stream.kinds(generation), 20)
        _whole(stream.of(generation), 20)
        kinds = _kinds(stream.of(generation))
        assert kinds[-1] == "finished"
        # Where the first one had said nothing, the second one begins anew.
        assert kinds in (
            ["accepted", "started", "taken_over", "finished"],
            ["accepted", "started", "started", "finished"],
            ["accepted", "started", "finished"],
        )
        assert other.began == [(generation, 2)]
        await until(lambda: made.app.in_flight == 0)
        # Its end is that of the worker that made it.
        await until(lambda: made.judged(other.id) == (1, 0))
        assert made.judged(lost.id)[0] == made.judged(lost.id)[1]
        assert await valkey.xlen(keys.lane(lost.id, "gold")) == 0
        await stream.close()


async def test_unread_work_of_a_dead_worker_is_moved(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with takeover_mesh(valkey_server.url, tokens=3) as ((made,), workers):
        for worker in workers:
            worker.taking = False
        stream = made.connect()
        opened = [await stream.open(ask(f"{n}"), location=False) for n in range(6)]
        for generation in opened:
            await stream.first(generation)
        assert {event.accepted.worker for event in stream.events} == {"w0", "w1"}
        await workers[0].stop()
        workers[1].taking = True
        await until(lambda: all("finished" in stream.kinds(generation) for generation in opened), 20)
        for generation in opened:
            _whole(stream.of(generation), 3)
        assert sorted(generation for generation, _ in workers[1].began) == sorted(opened)
        await stream.close()


async def test_without_any_worker_the_work_waits_in_the_pool_for_one_that_comes(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with takeover_mesh(valkey_server.url, workers=1, worker_lease_s=1) as ((made,), workers):
        stream = made.connect()
        generation = await stream.open(ask(), location=False)
        await until(lambda: text_of(stream.of(generation)) != "")
        await workers[0].stop()
        pool = keys.pool("m", "gold")

        async def waits() -> None:
            async with asyncio.timeout(10):
                while await valkey.xlen(pool) == 0:
                    await asyncio.sleep(0.05)

        await waits()
        late = JournalingWorker(valkey_server.url, "late", made.shared)
        await late.start()
        await until(lambda: "finished" in stream.kinds(generation), 20)
        _whole(stream.of(generation), 20)
        assert await valkey.xlen(pool) == 0
        await late.stop()
        await stream.close()


async def test_two_routers_that_reclaim_at_once_lead_to_one_answer(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with takeover_mesh(valkey_server.url, workers=3, routers=2, tokens=40) as (made, workers):
        streams = [mesh.connect() for mesh in made]
        opened = [(stream, await stream.open(ask(f"{n}"), location=False)) for n in range(4) for stream in streams]
        await until(lambda: all(text_of(stream.of(generation)) for stream, generation in opened))
        await workers[0].stop()
        await until(lambda: all("finished" in stream.kinds(generation) for stream, generation in opened), 30)
        for stream, generation in opened:
            _whole(stream.of(generation), 40)
        began = [each for worker in workers for each in worker.began]
        assert len(began) == len(set(began)), "no attempt began twice"
        for stream in streams:
            await stream.close()


async def test_a_new_router_needs_nothing_of_the_old_one(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with takeover_mesh(valkey_server.url, routers=2, pace_s=0.05) as ((first, second), workers):
        stream = first.connect()
        generation = await stream.open(ask())
        home = (await stream.first(generation)).accepted.worker
        await stream.close()
        await first.app.close()
        look = router_pb2.GetGenerationRequest(generation=generation)
        known = await second.stub.GetGeneration(look, metadata=second.metadata)
        assert known.worker == home
        assert known.durability == common_pb2.DURABILITY_RELAXED
        call = second.stub.Resume(
            router_pb2.ResumeRequest(generation=generation, cursor="0-1"), metadata=second.metadata
        )
        events = [event async for response in call for event in response.events]
        assert _kinds(events) == ["resumed", "started", "finished"]
        assert text_of(events) == words(20)
        again = second.connect()
        other = await again.open(ask("cancel me"))
        await again.first(other)
        reply = await second.stub.Cancel(router_pb2.CancelRequest(generation=other), metadata=second.metadata)
        assert reply.state in (router_pb2.GENERATION_STATE_QUEUED, router_pb2.GENERATION_STATE_RUNNING)
        await until(lambda: any(other in worker.hand.cancelled for worker in workers))
        await again.close()


class _Reader:
    """A ReaderSink that keeps what it got."""

    def __init__(self) -> None:
        self.events: list[common_pb2.Event] = []
        self.error: Any = None

    def event(self, event: common_pb2.Event, kind: str) -> None:
        copy = common_pb2.Event()
        copy.CopyFrom(event)
        self.events.append(copy)

    def lost(self, error: Any, delivered_until: int) -> None:
        self.error = error


class _AsAnEdge:
    """Reads at the workers and asks a router where a generation is now."""

    def __init__(self, made: Mesh, url: str) -> None:
        self.made = made
        self.scope = TaskScope("edge")
        self.link = Link(url, SystemClock())
        self.pool = AttachPool(made.shared, self.scope, reattach_s=0.3)
        self.scope.spawn(self.link.run(), "link")
        self.ports = ReaderPorts(self.pool, self.link, self.locate, self.scope, takeover_wait_s=20)

    async def locate(
        self, generation: str, tenant: str, *, wait_s: float, above_epoch: int, lost_worker: str
    ) -> Located:
        look = router_pb2.GetGenerationRequest(
            generation=generation,
            tenant=tenant,
            wait_ms=int(wait_s * 1000),
            above_epoch=above_epoch,
            lost_worker=lost_worker,
        )
        try:
            known = await self.made.stub.GetGeneration(look, metadata=self.made.metadata)
        except grpc.aio.AioRpcError as refused:
            raise from_rpc_error(refused, "router") from None
        place = Place(known.worker, known.source) if known.source else None
        ended = known.state in (router_pb2.GENERATION_STATE_FINISHED, router_pb2.GENERATION_STATE_FAILED)
        return Located(place, known.epoch, ended, known.durability != common_pb2.DURABILITY_OFF, known.worker)

    async def close(self) -> None:
        await self.pool.close()
        await self.scope.close()


@pytest.mark.parametrize("token_path", ["direct", "relay"])
async def test_an_edge_waits_until_the_generation_is_located_again(
    valkey: Redis, valkey_server: ValkeyServer, token_path: str
) -> None:
    async with takeover_mesh(valkey_server.url, pace_s=0.05, token_path=token_path) as ((made,), workers):
        stream, edge, reader = made.connect(), _AsAnEdge(made, valkey_server.url), _Reader()
        generation = await stream.open(ask())
        accepted = (await stream.first(generation)).accepted
        lost, other = _of(workers, accepted.worker)
        assert accepted.source == (made.app.address if token_path == "relay" else lost.server.address)
        follow = GenerationReader(edge.ports, generation, "anonymous", reader, cursor=Cursor(0, 1))
        follow.attach(Place(accepted.worker, accepted.source))
        await until(lambda: text_of(reader.events).count(" ") >= 5)
        await lost.stop()
        await until(lambda: follow.ended, 20)
        assert reader.error is None
        _whole([common_pb2.Event(position=1), *reader.events], 20)
        assert "taken_over" in _kinds(reader.events)
        assert other.began == [(generation, 2)]
        look = router_pb2.GetGenerationRequest(generation=generation)
        known = await made.stub.GetGeneration(look, metadata=made.metadata)
        assert (known.state, known.worker) == (router_pb2.GENERATION_STATE_FINISHED, other.id)
        assert known.epoch >> 20 == 2
        assert known.cursor == str(follow.cursor)
        await edge.close()
        await stream.close()


async def test_a_worker_that_still_answers_is_not_robbed_by_a_wrong_hint(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with takeover_mesh(valkey_server.url, pace_s=0.05) as ((made,), workers):
        stream = made.connect()
        generation = await stream.open(ask(), location=False)
        home, other = _of(workers, (await stream.first(generation)).accepted.worker)
        look = router_pb2.GetGenerationRequest(
            generation=generation, wait_ms=300, lost_worker=home.id, above_epoch=1 << 30
        )
        began = time.monotonic()
        await made.stub.GetGeneration(look, metadata=made.metadata)
        assert time.monotonic() - began >= 0.25, "it waited for somebody else to begin"
        await until(lambda: "finished" in stream.kinds(generation), 10)
        _whole(stream.of(generation), 20)
        assert other.began == []
        await stream.close()


async def test_without_a_channel_a_lost_worker_is_the_end(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with takeover_mesh(valkey_server.url, workers=1) as ((made,), workers):
        workers[0].taking = False
        edge, reader, stream = _AsAnEdge(made, valkey_server.url), _Reader(), made.connect()
        generation = await stream.open(ask(durability=common_pb2.DURABILITY_OFF))
        accepted = (await stream.first(generation)).accepted
        assert accepted.durability == common_pb2.DURABILITY_OFF
        follow = GenerationReader(edge.ports, generation, "anonymous", reader, cursor=Cursor(0, 1), durable=False)
        follow.attach(Place(accepted.worker, accepted.source))
        await workers[0].stop()
        await until(lambda: reader.error is not None)
        assert isinstance(reader.error, WorkerLost)
        await edge.close()
        await stream.close()


async def test_i2_what_brought_down_too_many_workers_lies_in_the_dead_lane_and_can_be_tried_again(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with takeover_mesh(valkey_server.url, workers=4, pace_s=0.1, worker_lease_s=1) as ((made,), workers):
        stream = made.connect()
        generation = await stream.open(ask(), location=False)
        await stream.first(generation)
        for attempt in (1, 2, 3):
            await until(lambda: any((generation, attempt) in worker.began for worker in workers), 15)  # noqa: B023
            await next(worker for worker in workers if (generation, attempt) in worker.began).stop()
        await until(lambda: stream.kinds(generation)[-1] == "error", 20)
        assert from_status(stream.of(generation)[-1].error.status).name == "too_many_attempts"
        assert await dead_models(valkey) == {"m": 1}
        (task,) = await list_dead(valkey, "m")
        assert (task.generation, task.kept, [call["attempt"] for call in task.calls]) == (generation, True, [1, 2, 3])
        look = router_pb2.GetGenerationRequest(generation=generation)
        known = await made.stub.GetGeneration(look, metadata=made.metadata)
        assert known.state == router_pb2.GENERATION_STATE_FAILED
        other = await stream.open(ask("not hurt"), location=False)
        await until(lambda: "finished" in stream.kinds(other), 15)
        assert await retry_dead(valkey, "m", task)
        assert await list_dead(valkey, "m") == []
        call = made.stub.Resume(router_pb2.ResumeRequest(generation=generation), metadata=made.metadata)
        events = [event async for response in call for event in response.events]
        assert _kinds(events) == ["resumed", "accepted", "started", "finished"]
        assert text_of(events) == words(20)
        await stream.close()


async def test_a_generation_that_nobody_can_reach_is_cancelled_in_its_channel(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with takeover_mesh(valkey_server.url, workers=1, worker_lease_s=1) as ((made,), workers):
        stream = made.connect()
        generation = await stream.open(ask(), location=False)
        await until(lambda: text_of(stream.of(generation)) != "")
        await workers[0].stop()
        await until(lambda: not made.app.in_flight, 10)
        async with asyncio.timeout(10):
            while await valkey.exists(keys.lease("worker", "w0")):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        await made.stub.Cancel(router_pb2.CancelRequest(generation=generation), metadata=made.metadata)
        await until(lambda: stream.kinds(generation)[-1] == "error", 10)
        assert from_status(stream.of(generation)[-1].error.status).name == "cancelled"
        late = JournalingWorker(valkey_server.url, "late", made.shared)
        await late.start()
        await asyncio.sleep(0.5)
        assert late.began == []
        await late.stop()
        await stream.close()
