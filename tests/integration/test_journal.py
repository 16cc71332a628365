"""The journal on real servers: writing, beginning, reading, following, reclaiming; connections and stores that break."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from streamway.journal import (
    START,
    Begun,
    Continues,
    Cursor,
    Done,
    Drop,
    Entry,
    Follower,
    GiveUp,
    Gone,
    JournalWriter,
    Kind,
    NotRecovered,
    Place,
    Reclaimer,
    Requeue,
    Stale,
    StopReason,
    Why,
    Writing,
    accept,
    begin_call,
    decode_events,
    encode_events,
    read_channel,
)
from streamway.lanes.task import TaskCopy
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_epoch
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from tests.support.needs import program
from tests.support.valkey_server import ValkeyServer

LANE = keys.lane("w0", "gold")
ACCEPTED = Entry(0, 1, 1, Kind.ACCEPTED, encode_events([common_pb2.Event(position=1, accepted=common_pb2.Accepted())]))


class RedisServer:
    """A Redis 7, where one is installed."""

    def __init__(self, folder: Path) -> None:
        binary = program("redis-server", package="redis-server")
        self.url = f"unix://{folder}/redis.sock"
        command = [binary, "--port", "0", "--unixsocket", f"{folder}/redis.sock", "--dir", str(folder), "--save", ""]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(params=["valkey_server", "redis_server"])
async def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param).url
    return found


@pytest.fixture
async def link(url: str) -> AsyncIterator[Link]:
    async with TaskScope("test") as scope:
        link = Link(url, SystemClock())
        scope.spawn(link.run(), "link")
        async with asyncio.timeout(20):
            session = await link.session()
        await session.call("FLUSHALL")
        await session.call("SCRIPT", "FLUSH")
        await session.call("XGROUP", "CREATE", LANE, keys.LANE_GROUP, "0", "MKSTREAM")
        yield link


class Reader:
    """Hears what becomes of one engine call."""

    def __init__(self) -> None:
        self.position = 0
        self.silent_at: int | None = None
        self.reason: StopReason | None = None
        self.done = False

    def confirmed(self, position: int) -> None:
        assert position > self.position
        self.position = position

    def unanswered(self, position: int) -> None:
        self.silent_at = position

    def stopped(self, reason: StopReason) -> None:
        self.reason = reason

    def finished(self) -> None:
        self.done = True


class NoDeadLetters:
    async def model_of(self, generation: str) -> str:
        return "tiny"

    def end_payload(self, generation: str) -> bytes:
        return encode_events([common_pb2.Event(error=common_pb2.Error(delivered_until=3))])


async def until(met: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not met():
            await asyncio.sleep(0.01)


def tokens(first: int, *words: str) -> bytes:
    return encode_events(
        common_pb2.Event(position=first + index, token=common_pb2.Token(text=word)) for index, word in enumerate(words)
    )


async def add_copy(link: Link, attempt: int, ref: str, read_by: str | None = "w0") -> tuple[TaskCopy, Place]:
    """A task copy in the lane, pending for a worker unless `read_by` is None."""
    session = await link.session()
    copy = TaskCopy("g", attempt, ref)
    fields = [part for pair in copy.fields().items() for part in pair]
    entry = await session.call("XADD", LANE, "*", *fields)
    if read_by is not None:
        await session.call("XREADGROUP", "GROUP", keys.LANE_GROUP, read_by, "COUNT", 1, "STREAMS", LANE, ">")
    return copy, Place(LANE, entry.decode())


async def begin(
    link: Link, writer: JournalWriter, attempt: int, ref: str, listener: Reader, worker: str = "w0"
) -> Writing:
    copy, place = await add_copy(link, attempt, ref, worker)
    answer = await begin_call(link, copy, place, worker, b"", new_epoch)
    assert isinstance(answer, tuple), answer
    return writer.open(*answer, listener)


async def lane_is_empty(link: Link) -> bool:
    session = await link.session()
    pending = await session.call("XPENDING", LANE, keys.LANE_GROUP)
    return pending[0] == 0 and await session.call("XLEN", LANE) == 0


async def test_accepting_twice_changes_nothing(link: Link) -> None:
    session = await link.session()
    assert await accept(session, "g", [ACCEPTED], 60_000)
    assert not await accept(session, "g", [ACCEPTED, ACCEPTED._replace(last=2)], 1)
    assert await session.call("XLEN", keys.response("g")) == 1
    assert await session.call("PTTL", keys.response("g")) > 50_000


async def test_a_generation_is_written_confirmed_and_acknowledged(link: Link) -> None:
    session = await link.session()
    await accept(session, "g", [ACCEPTED], 60_000)
    writer, listener = JournalWriter(link, SystemClock(), finished_ttl_ms=7_000), Reader()
    writing = await begin(link, writer, 1, "r1", listener)
    writing.append(Kind.TOKENS, 4, tokens(3, "Hel", "lo"))
    writing.append(Kind.END, 5, encode_events([common_pb2.Event(position=5, finished=common_pb2.Finished())]))
    await until(lambda: listener.done)
    assert listener.position == 5
    assert await lane_is_empty(link)
    assert await session.call("PTTL", keys.response("g")) <= 7_000
    read = await read_channel(session, "g")
    events = [event for entry in read.entries for event in decode_events(entry)]
    assert [event.position for event in events] == [1, 2, 3, 4, 5]
    assert [event.WhichOneof("event") for event in events] == ["accepted", "started", "token", "token", "finished"]


async def test_begin_says_who_was_first(link: Link) -> None:
    session = await link.session()
    copy, place = await add_copy(link, 1, "r1")
    assert await begin_call(link, copy, place, "w0", b"", new_epoch) == Gone()
    await accept(session, "g", [ACCEPTED], 60_000)
    writer, listener = JournalWriter(link, SystemClock()), Reader()
    writing = await begin(link, writer, 2, "r2", listener)
    assert await begin_call(link, copy, place, "w0", b"", new_epoch) == Stale("r2")
    writing.append(Kind.END, 3, b"")
    await until(lambda: listener.done)
    assert await begin_call(link, copy, place, "w0", b"", new_epoch) == Done()


async def test_a_takeover_fences_the_old_worker_and_has_its_text(link: Link) -> None:
    session = await link.session()
    await accept(session, "g", [ACCEPTED], 60_000)
    writer, old, new = JournalWriter(link, SystemClock()), Reader(), Reader()
    paused = await begin(link, writer, 1, "r1", old)
    paused.append(Kind.TOKENS, 3, tokens(3, "Hel"))
    await until(lambda: old.position == 3)
    copy, place = await add_copy(link, 2, "r2", "w1")
    answer = await begin_call(link, copy, place, "w1", b"", new_epoch)
    assert isinstance(answer, tuple)
    begun: Begun = answer[0]
    assert [entry.last for entry in begun.before] == [1, 2, 3]
    assert decode_events(begun.begin)[0].taken_over.from_worker == "w0"
    paused.append(Kind.TOKENS, 4, tokens(4, "zombie"))
    await until(lambda: old.reason is not None)
    assert old.reason is StopReason.FENCED
    writing = writer.open(*answer, new)
    writing.append(Kind.TOKENS, 5, tokens(5, "lo"))
    await until(lambda: new.position == 5)
    read = await read_channel(session, "g", Cursor(paused.channel.begun.epoch, 3))
    assert [entry.last for entry in read.entries] == [4, 5]


async def test_a_killed_connection_loses_and_repeats_nothing(link: Link) -> None:
    session = await link.session()
    await accept(session, "g", [ACCEPTED], 60_000)
    writer, listener = JournalWriter(link, SystemClock()), Reader()
    writing = await begin(link, writer, 1, "r1", listener)
    for position in itertools.count(3):
        writing.append(Kind.TOKENS, position, tokens(position, f"{position} "))
        if position % 40 == 0:
            (await link.session()).abort()
        if position == 200:
            break
        await asyncio.sleep(0)
    writing.append(Kind.END, 201, b"")
    await until(lambda: listener.done)
    read = await read_channel(await link.session(), "g")
    assert [(entry.first, entry.last) for entry in read.entries] == [(n, n) for n in range(1, 202)]
    assert await lane_is_empty(link)


async def test_a_channel_that_expired_stops_its_call_and_does_not_come_back(link: Link) -> None:
    session = await link.session()
    await accept(session, "g", [ACCEPTED], 60_000)
    writer, listener = JournalWriter(link, SystemClock()), Reader()
    writing = await begin(link, writer, 1, "r1", listener)
    await session.call("DEL", keys.response("g"))
    writing.append(Kind.TOKENS, 3, tokens(3, "x"))
    await until(lambda: listener.reason is not None)
    assert listener.reason is StopReason.EXPIRED
    assert await session.call("EXISTS", keys.response("g")) == 0
    assert (await read_channel(session, "g", Cursor(1, 2))).outcome == NotRecovered(None)


async def test_a_reader_follows_from_its_cursor(link: Link, url: str) -> None:
    session = await link.session()
    heard: dict[str, list[int]] = {"g": [], "h": []}

    class Listener:
        def __init__(self, name: str) -> None:
            self._name = name

        def entries(self, entries: list[Entry]) -> None:
            heard[self._name] += [entry.last for entry in entries]

        def interrupted(self) -> None:
            heard[self._name].append(-1)

    for name in heard:
        await accept(session, name, [ACCEPTED], 60_000)
    async with TaskScope("follower") as scope:
        blocking = Link(url, SystemClock(), silence_s=60.0, reply_timeout_s=60.0)
        scope.spawn(blocking.run(), "blocking")
        follower = Follower(blocking, link)
        scope.spawn(follower.run(), "follower")
        read = await read_channel(session, "g")
        assert isinstance(read.outcome, Continues)
        follower.follow("g", read.tail, Listener("g"))
        await asyncio.sleep(0.1)  # it blocks now, on g alone
        second = follower.follow("h", START, Listener("h"))
        await until(lambda: heard["h"] == [1])
        writer, listener = JournalWriter(link, SystemClock()), Reader()
        writing = await begin(link, writer, 1, "r1", listener)
        writing.append(Kind.TOKENS, 3, tokens(3, "x"))
        await until(lambda: heard["g"] == [2, 3])
        second.close()
        assert len(follower) == 1
        (await blocking.session()).abort()
        await until(lambda: heard["g"] == [2, 3, -1])
    assert heard["h"] == [1]


def _reclaimer(link: Link, most_attempts: int = 3) -> Reclaimer:
    refs = (f"n{number}" for number in itertools.count())
    return Reclaimer(
        link, "router-0", lambda copy, lane: keys.lane("w1", "gold"), lambda: next(refs), new_epoch,
        NoDeadLetters(), most_attempts=most_attempts,
    )  # fmt: skip


async def test_what_a_dead_worker_had_and_what_it_never_read_goes_to_another(link: Link) -> None:
    session = await link.session()
    await accept(session, "g", [ACCEPTED], 60_000)
    await add_copy(link, 1, "read")
    await add_copy(link, 1, "unread", None)
    settled = await _reclaimer(link).sweep(LANE, lambda holder: holder == "w0", owner_gone=True)
    assert [(copy.ref, fate) for copy, fate in settled] == [("read", Requeue(2, 1)), ("unread", Requeue(2, 1))]
    assert await lane_is_empty(link)
    rows = await session.call("XRANGE", keys.lane("w1", "gold"), "-", "+")
    assert [row[1][5] for row in rows] == [b"n0", b"n1"]


async def test_a_living_workers_copies_are_left_alone(link: Link) -> None:
    await add_copy(link, 1, "r1")
    assert await _reclaimer(link).sweep(LANE, lambda _: False, owner_gone=False) == []
    assert not await lane_is_empty(link)


async def test_an_ended_generations_copy_is_acknowledged(link: Link) -> None:
    session = await link.session()
    end = Entry(0, 2, 2, Kind.END, b"")
    await accept(session, "g", [ACCEPTED, end], 60_000)
    copy, place = await add_copy(link, 1, "r1")
    assert await _reclaimer(link).settle(copy, place) == Drop(Why.ENDED)
    assert await lane_is_empty(link)


async def test_the_fourth_delivery_goes_to_the_dead_lane_and_readers_are_told(link: Link) -> None:
    session = await link.session()
    await accept(session, "g", [ACCEPTED], 60_000)
    writer = JournalWriter(link, SystemClock())
    writing = await begin(link, writer, 3, "r3", Reader(), "w0")
    settled = await _reclaimer(link).sweep(LANE, lambda _: True, owner_gone=False)
    assert [fate for _, fate in settled] == [GiveUp(4)]
    assert await lane_is_empty(link)
    ((_, fields),) = await session.call("XRANGE", keys.dead("tiny"), "-", "+")
    row = dict(zip(fields[::2], fields[1::2], strict=True))
    assert row[b"generation"] == b"g"
    assert json.loads(row[b"calls"]) == [
        {"attempt": 3, "epoch": writing.channel.begun.epoch, "position": 2, "worker": "w0"}
    ]
    read = await read_channel(session, "g")
    last = decode_events(read.entries[-1])[0]
    assert (read.entries[-1].kind, last.position, last.error.delivered_until) == (Kind.END, 4, 3)


async def test_a_store_that_dies_and_comes_back_without_its_newest_second(tmp_path: Path) -> None:
    arguments = ("--appendonly", "yes", "--appendfsync", "no")
    server = ValkeyServer(tmp_path, *arguments)
    async with TaskScope("test") as scope:
        link = Link(server.url, SystemClock())
        scope.spawn(link.run(), "link")
        session = await link.session()
        await session.call("XGROUP", "CREATE", LANE, keys.LANE_GROUP, "0", "MKSTREAM")
        await accept(session, "g", [ACCEPTED], 60_000)
        writer, listener = JournalWriter(link, SystemClock()), Reader()
        writing = await begin(link, writer, 1, "r1", listener)
        for position in range(3, 13):
            writing.append(Kind.TOKENS, position, tokens(position, "x" * 100))
            await until(lambda now=position: listener.position == now)
        server.stop()
        newest = max((tmp_path / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_size)
        with newest.open("r+b") as log:
            log.truncate(newest.stat().st_size - 700)
        writing.append(Kind.TOKENS, 13, tokens(13, "y"))
        await until(lambda: listener.silent_at is not None)
        assert listener.position == 12
        server = ValkeyServer(tmp_path, *arguments)
        try:
            writing.append(Kind.END, 14, b"")
            await until(lambda: listener.done)
            read = await read_channel(await link.session(), "g")
            assert [entry.last for entry in read.entries] == list(range(1, 15))
            assert await lane_is_empty(link)
        finally:
            server.stop()


async def test_a_store_that_is_full_makes_the_call_wait(valkey_server: ValkeyServer, valkey: Redis) -> None:
    async with TaskScope("test") as scope:
        link = Link(valkey_server.url, SystemClock())
        scope.spawn(link.run(), "link")
        session = await link.session()
        await session.call("XGROUP", "CREATE", LANE, keys.LANE_GROUP, "0", "MKSTREAM")
        await accept(session, "g", [ACCEPTED], 60_000)
        writer, listener = JournalWriter(link, SystemClock()), Reader()
        writing = await begin(link, writer, 1, "r1", listener)
        await valkey.config_set("maxmemory", "1")
        try:
            writing.append(Kind.TOKENS, 3, tokens(3, "x"))
            await until(lambda: listener.silent_at is not None)
        finally:
            await valkey.config_set("maxmemory", "0")
        await until(lambda: listener.position == 3)


async def test_a_store_that_says_nothing_is_told_of_and_its_connection_given_up(
    valkey_server: ValkeyServer, valkey: Redis
) -> None:
    async with TaskScope("test") as scope:
        link = Link(valkey_server.url, SystemClock(), reply_timeout_s=0.5)
        scope.spawn(link.run(), "link")
        session = await link.session()
        await session.call("XGROUP", "CREATE", LANE, keys.LANE_GROUP, "0", "MKSTREAM")
        await accept(session, "g", [ACCEPTED], 60_000)
        writer, listener = JournalWriter(link, SystemClock()), Reader()
        writing = await begin(link, writer, 1, "r1", listener)
        await session.call("CLIENT", "PAUSE", 1_500, "ALL")
        writing.append(Kind.TOKENS, 3, tokens(3, "x"))
        await until(lambda: listener.silent_at == 2)
        await until(lambda: not session.alive)
        await until(lambda: listener.position == 3)
        read = await read_channel(await link.session(), "g")
        assert [entry.last for entry in read.entries] == [1, 2, 3]
