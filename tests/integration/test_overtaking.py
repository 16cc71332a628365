"""An answer from the cache in the place of a worker's: in the channel, at the worker, and from the router."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from services.router.core import events as made
from streamway.config import SharedSettings
from streamway.errors import Cancelled, EventsExpired
from streamway.journal import Entry, Kind, Line, begin_call, decode_events, encode_events
from streamway.journal.entries import Begin, on_line
from streamway.journal.functions import Done
from streamway.journal.overtaking import overtake
from streamway.journal.signals import Place
from streamway.lanes import TaskCopy, add_generation
from streamway.rpc import MeshServer, MountedService
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_epoch, new_generation_id
from streamway.runtime.tasks import TaskScope
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2, inference_pb2, router_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import Session
from tests.support.adapter_world import (
    WORKER,
    Attached,
    attached,
    channel_of,
    enqueue,
    eventually,
    kinds,
    open_channel,
    reason,
    request,
    running_adapter,
    state_of,
    unfinished,
)
from tests.support.inference_service import started, token
from tests.support.router_mesh import Mesh, ask, mesh, until
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer

EPOCH = 1 << 20 | 7
SEMANTIC = common_pb2.CACHE_POLICY_SEMANTIC
KEPT = cache_pb2.CachedAnswer(
    entry="e1",
    events=[
        common_pb2.Event(token=common_pb2.Token(text="from ", units=1)),
        common_pb2.Event(
            token=common_pb2.Token(
                text="the cache", units=2, choice_finished=common_pb2.ChoiceFinished(finish_reason="stop")
            )
        ),
    ],
    finish_reason="stop",
    usage=common_pb2.Usage(prompt_tokens=3, completion_tokens=3, reasoning_tokens=1),
    similarity=0.97,
    age_s=5,
)


def told_from(start: int) -> list[common_pb2.Event]:
    return made.overtaking(KEPT, "semantic", start)


def text_in(entries: list[Entry], line: Line) -> str:
    """The answer on a line."""
    return "".join(
        event.token.text
        for entry in on_line(entries, line)
        for event in decode_events(entry)
        if event.HasField("token")
    )


@pytest.fixture
async def link(valkey_server: ValkeyServer) -> AsyncIterator[Link]:
    made_link, scope = Link(valkey_server.url, SystemClock()), TaskScope("test")
    scope.spawn(made_link.run(), "link")
    yield made_link
    await scope.close()


async def write(valkey: Redis, generation: str, entry: Entry) -> bool:
    """An append, as a worker's; False when it is refused."""
    fields = entry.fields()
    pairs: dict[Any, Any] = dict(zip(fields[::2], fields[1::2], strict=True))
    try:
        await valkey.xadd(keys.response(generation), pairs, id=str(entry.id), nomkstream=True)
    except Exception:
        return False
    return True


def begun() -> Entry:
    event = common_pb2.Event(started=common_pb2.Started(worker="w0"))
    return Entry(EPOCH, 2, 2, Kind.BEGIN, encode_events([event]), Begin("ref", "w0", Line(((0, 1), (EPOCH, 2)))))


def first_token() -> Entry:
    return Entry(EPOCH, 3, 3, Kind.TOKENS, encode_events([token(3, "from the worker", EPOCH)]))


async def overtaken(session: Session, generation: str, ref: str = "mine") -> bool:
    return await overtake(session, generation, ref, "router-0", new_epoch, told_from, 60_000)


async def test_what_no_worker_has_begun_is_answered_and_then_nothing_of_it_begins(valkey: Redis, link: Link) -> None:
    generation = new_generation_id()
    await open_channel(valkey, generation)
    assert await overtaken(await link.session(), generation)
    entries = await channel_of(valkey, generation)
    assert [entry.kind for entry in entries] == ["accepted", "begin", "tokens", "end"]
    assert [(entry.first, entry.last) for entry in entries] == [(1, 1), (2, 2), (3, 5), (6, 6)]
    assert 0 < await valkey.pttl(keys.response(generation)) <= 60_000

    lane = keys.lane("w0", "gold")
    copy = TaskCopy(generation, 1, "ref")
    entry = await valkey.xadd(lane, dict(copy.fields()))
    answer = await begin_call(link, copy, Place(lane, entry.decode()), "w0", b"", new_epoch)
    assert isinstance(answer, Done)
    assert len(await channel_of(valkey, generation)) == 4


async def test_one_that_has_begun_without_a_token_is_fenced_and_its_reader_goes_on_along_the_line(
    valkey: Redis, link: Link
) -> None:
    generation = new_generation_id()
    await open_channel(valkey, generation)
    assert await write(valkey, generation, begun())
    session = await link.session()
    assert await overtaken(session, generation)
    assert not await write(valkey, generation, first_token()), "the worker's first token is refused"
    entries = await channel_of(valkey, generation)
    begin = entries[2].begin
    assert begin is not None
    assert begin.line.begins_anew
    assert begin.line.segments[:2] == ((0, 1), (EPOCH, 2))
    assert text_in(entries, begin.line) == "from the cache"
    assert await overtaken(session, generation), "asked again since the reply was lost"
    assert len(await channel_of(valkey, generation)) == len(entries)
    assert not await overtaken(session, generation, "another")


async def test_a_first_token_that_was_quicker_stays(valkey: Redis, link: Link) -> None:
    generation = new_generation_id()
    session = await link.session()
    assert not await overtaken(session, generation), "no channel"
    assert not await valkey.exists(keys.response(generation))
    await open_channel(valkey, generation)
    await write(valkey, generation, begun())
    assert await write(valkey, generation, first_token())
    assert not await overtaken(session, generation)
    later = EPOCH + (1 << 20)
    line = Line(((0, 1), (EPOCH, 2), (later, 4)))
    again = Entry(later, 4, 4, Kind.BEGIN, encode_events([common_pb2.Event()]), Begin("r2", "w1", line, "w0"))
    assert await write(valkey, generation, again)
    assert not await overtaken(session, generation), "what another worker goes on with has a text too"
    assert len(await channel_of(valkey, generation)) == 4


async def test_of_a_first_token_and_an_answer_at_the_same_moment_the_channel_has_exactly_one(
    valkey: Redis, valkey_server: ValkeyServer, link: Link
) -> None:
    session, won = await link.session(), {True: 0, False: 0}
    for number in range(60):
        generation = new_generation_id()
        await open_channel(valkey, generation)

        async def work(generation: str = generation, begins_first: bool = bool(number % 2)) -> bool:
            began = await write(valkey, generation, begun())
            return began and await write(valkey, generation, first_token())

        if number % 3:
            await write(valkey, generation, begun())
            by_cache, by_worker = await asyncio.gather(
                overtaken(session, generation), write(valkey, generation, first_token())
            )
        else:
            by_cache, by_worker = await asyncio.gather(overtaken(session, generation), work())
        assert by_cache != by_worker
        won[by_cache] += 1
        entries = await channel_of(valkey, generation)
        last = next(entry.begin for entry in reversed(entries) if entry.begin is not None)
        assert text_in(entries, last.line) == ("from the cache" if by_cache else "from the worker")
        assert [entry.kind for entry in entries].count(Kind.END) == by_cache
    assert sum(won.values()) == 60


# --- At the worker


def durable(prompt: str = "hello") -> common_pb2.GenerationRequest:
    return request(prompt, durability=common_pb2.DURABILITY_RELAXED)


async def answered(stream: Attached, generation: str) -> None:
    await stream.send(inference_pb2.AttachCommand(answered=inference_pb2.Answered(generation=generation)))


async def test_a_worker_lets_go_of_what_was_answered_wherever_it_is(
    valkey: Redis, valkey_server: ValkeyServer, link: Link
) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        running, queued = await enqueue(valkey, durable("running")), ""
        call = await engine.next_call()
        queued = await enqueue(valkey, durable("queued"))
        unread = durable("unread")
        await eventually(lambda: adapter.window.waiting, 1)
        numbers = [await stream.subscribe(each, after=1) for each in (running, queued, unread.generation)]
        assert (await stream.until(numbers[0], 1))[0].HasField("started")
        session = await link.session()
        for generation in (running, queued):
            assert await overtaken(session, generation)
        await answered(stream, running)
        await answered(stream, queued)
        await answered(stream, unread.generation)
        for number in numbers:
            end = (await stream.all(number))[-1]
            assert (reason(end), end.epoch) == ("events_expired", 0), "its reader goes to the channel"
        await eventually(lambda: call.aborted, True)
        await eventually(lambda: unfinished(valkey), 0)
        await eventually(lambda: adapter.window.running + adapter.window.waiting, 0)

        # The third one's task comes now.
        await open_channel(valkey, unread.generation)
        assert await overtaken(session, unread.generation)
        late = await stream.subscribe(unread.generation, after=1)
        assert reason((await stream.all(late))[-1]) == "events_expired"
        copy, now_ms = TaskCopy(unread.generation, 1, "r"), int(time.time() * 1000)
        await add_generation(valkey, unread, WORKER, copy, now_ms)
        await eventually(lambda: unfinished(valkey), 0)
        await eventually(lambda: adapter.window.running + adapter.window.waiting, 0)
        assert len(engine.calls) == 1
        for generation in (running, queued, unread.generation):
            entries = await channel_of(valkey, generation)
            assert [entry.kind for entry in entries].count(Kind.END) == 1
            assert entries[-1].kind is Kind.END


# --- From the router


class LateCache(cache_pb2_grpc.CacheServiceServicer):
    """Knows nothing by key at once, and something alike when it is let."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.stored: list[common_pb2.GenerationRequest] = []
        self.levels: list[int] = []
        self.outcome = cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC

    async def Exchange(
        self, requests: AsyncIterator[cache_pb2.ExchangeRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[cache_pb2.ExchangeResponse]:
        async for batch in requests:
            for call in batch.calls:
                if call.WhichOneof("call") == "store":
                    self.stored.append(call.store.request)
                    reply = cache_pb2.ExchangeReply(id=call.id, store=cache_pb2.StoreResponse(entry="x"))
                else:
                    self.levels.append(call.lookup.level)
                    found = cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_MISS)
                    if call.lookup.level != cache_pb2.LOOKUP_LEVEL_KEYED:
                        self.asked.set()
                        await self.let.wait()
                        found = cache_pb2.LookupResponse(outcome=self.outcome, answer=KEPT)
                    reply = cache_pb2.ExchangeReply(id=call.id, lookup=found)
                yield cache_pb2.ExchangeResponse(replies=[reply])


@asynccontextmanager
async def late_mesh(valkey: Redis, url: str, **settings: Any) -> AsyncIterator[tuple[Mesh, LateCache]]:
    cache = LateCache()
    mounted = MountedService("streamway.v1.CacheService", cache, cache_pb2_grpc.add_CacheServiceServicer_to_server)
    server = MeshServer("127.0.0.1", 0, SharedSettings(valkey_url=url), [mounted])
    await server.start()
    try:
        values = {"cache_semantic_beside_ms": 60_000, "cache_semantic_budget_ms": 1000, **settings}
        async with mesh(valkey, url, caches=(server.address,), **values) as running:
            await until(lambda: running.app.caches_connected == 1)
            yield running, cache
    finally:
        await server.stop(0)


def outcomes(running: Mesh) -> dict[str, float]:
    """Lookups by outcome, as the router counts them."""
    found = running.app._metrics.cache_lookups.collect()[0].samples
    return {sample.labels["outcome"]: sample.value for sample in found if sample.name.endswith("_total")}


async def test_a_semantic_lookup_runs_beside_the_dispatch_and_answers_what_has_no_token_yet(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with late_mesh(valkey, valkey_server.url) as (running, cache):
        stream, worker = running.connect(), running.workers[0]
        generation = await stream.open(ask(cache=SEMANTIC))
        told = await stream.first(generation)
        assert (told.accepted.cache, told.accepted.worker) == ("pending", "w0")
        tasks = await worker.take()
        assert [task.copy.generation for task in tasks] == [generation]
        assert not cache.let.is_set(), "the task was in its lane before the encoder had answered"
        await cache.asked.wait()
        await write(valkey, generation, begun())

        cache.let.set()
        commands = worker.hand.commands
        await until(lambda: any(command.answered.generation == generation for command in commands))
        assert await state_of(valkey, generation) == "finished"
        assert running.app.in_flight == 0
        await until(lambda: outcomes(running) == {"semantic": 1.0})
        call = running.stub.Resume(
            router_pb2.ResumeRequest(generation=generation, cursor=f"{EPOCH}-2"), metadata=running.metadata
        )
        rest = [event async for response in call for event in response.events]
        assert kinds(rest) == ["resumed", "started", "token", "token", "finished"]
        assert rest[1].started.cache == "semantic"
        assert (rest[1].started.cache_hit.entry, rest[1].started.cache_hit.age_s) == ("e1", 5)
        assert [(event.first_position or event.position, event.position) for event in rest[1:]] == [
            (3, 3),
            (4, 4),
            (5, 6),
            (7, 7),
        ]
        usage = rest[-1].finished.usage
        assert (usage.from_cache, usage.completion_tokens, usage.reasoning_tokens) == (True, 3, 1)
        assert cache.stored == []
        await stream.close()


async def test_a_hit_behind_the_first_token_is_dropped_and_the_worker_s_answer_is_kept(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with late_mesh(valkey, valkey_server.url) as (running, cache):
        stream, worker = running.connect(), running.workers[0]
        generation = await stream.open(ask(cache=SEMANTIC), location=False)
        await stream.first(generation)
        await write(valkey, generation, begun())
        await write(valkey, generation, first_token())
        await cache.asked.wait()
        cache.let.set()
        await until(lambda: outcomes(running) == {"late": 1.0})
        last = token(4, "", EPOCH)
        last.token.choice_finished.finish_reason = "stop"
        ended = common_pb2.Event(position=5, epoch=EPOCH, finished=common_pb2.Finished(finish_reason="stop"))
        await until(lambda: any(each.generation == generation for each in worker.hand.subscribed))
        worker.hand.push(generation, started(2, EPOCH), token(3, "from the worker", EPOCH), last, ended)
        await until(lambda: "finished" in stream.kinds(generation))
        assert "".join(event.token.text for event in stream.of(generation)) == "from the worker"
        assert not any(command.HasField("answered") for command in worker.hand.commands)
        await until(lambda: [each.generation for each in cache.stored] == [generation])
        await stream.close()


async def test_whoever_reads_through_the_router_gets_the_cached_answer_once(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with late_mesh(valkey, valkey_server.url) as (running, cache):
        stream, worker = running.connect(), running.workers[0]
        generation = await stream.open(ask(cache=SEMANTIC), location=False)
        await stream.first(generation)
        await write(valkey, generation, begun())
        worker.hand.push(generation, started(2, EPOCH))
        await until(lambda: stream.kinds(generation) == ["accepted", "started"])
        cache.let.set()
        commands = worker.hand.commands
        await until(lambda: any(command.HasField("answered") for command in commands))
        # What the worker does then.
        gone = made.failed("", EventsExpired(generation), 2)
        gone.epoch = 0
        worker.hand.push(generation, gone)
        await until(lambda: "finished" in stream.kinds(generation))
        assert stream.kinds(generation) == ["accepted", "started", "started", "token", "token", "finished"]
        assert "".join(event.token.text for event in stream.of(generation)) == "from the cache"
        await stream.close()


@pytest.mark.parametrize("wanted", ["durability off", "before", "no room", "only if cached"])
async def test_the_lookup_is_in_front_where_it_can_not_be_beside(
    valkey: Redis, valkey_server: ValkeyServer, wanted: str, tmp_path: Path
) -> None:
    asked = ask(cache=SEMANTIC)
    settings: dict[str, Any] = {}
    if wanted == "durability off":
        asked.durability = common_pb2.DURABILITY_OFF
    elif wanted == "only if cached":
        asked.cache_control.only_if_cached = True
    elif wanted == "before":
        tenants = tmp_path / "tenants.yaml"
        tenants.write_text("tenants: {acme: {tier: gold, semantic_lookup: before}}\nanonymous: acme\n")
        settings["shared"] = {"tenants_file": tenants}
        asked.tenant = "acme"
    else:
        settings["worker_fields"] = {"draining": "1"}
    async with late_mesh(valkey, valkey_server.url, **settings) as (running, cache):
        cache.let.set()
        stream = running.connect()
        generation = await stream.open(asked)
        await until(lambda: "finished" in stream.kinds(generation))
        assert stream.of(generation)[0].accepted.cache == "semantic"
        assert await running.workers[0].take() == []
        await stream.close()


async def test_a_tenant_without_semantic_lookups_has_the_other_levels(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("tenants: {acme: {tier: gold, semantic_lookup: off}}\nanonymous: acme\n")
    async with late_mesh(valkey, valkey_server.url, shared={"tenants_file": tenants}) as (running, cache):
        stream = running.connect()
        told = await stream.first(await stream.open(ask(cache=SEMANTIC, tenant="acme")))
        assert told.accepted.cache == "miss"
        assert cache.levels == [cache_pb2.LOOKUP_LEVEL_KEYED]
        await stream.close()


async def test_a_cancel_before_the_hit_wins(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with late_mesh(valkey, valkey_server.url) as (running, cache):
        stream = running.connect()
        generation = await stream.open(ask(cache=SEMANTIC))
        await stream.first(generation)
        end = made.failed("", Cancelled(), 2)
        await write(valkey, generation, begun())
        await write(valkey, generation, Entry(EPOCH, 3, 3, Kind.END, encode_events([end])))
        await cache.asked.wait()
        cache.let.set()
        await until(lambda: outcomes(running) == {"late": 1.0})
        assert len(await channel_of(valkey, generation)) == 3
        await stream.close()
