"""Client CPU of one journal append, in µs: raw packing, the whole writer, and redis-py's pipeline, on one real server.

`python -m benchmarks.journal_append [GENERATIONS] [FLUSHES]`: each flush appends one entry of 16 tokens to every generation.
CPU of this process alone, so the server's own work does not count. Quote the ratios: machines differ.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import hiredis
from redis.asyncio import Redis

from streamway.journal import JournalWriter, Kind, Place, StopReason, accept, begin_call, encode_events
from streamway.journal.entries import Entry
from streamway.journal.packing import head_of, pack_append
from streamway.lanes.task import TaskCopy
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_epoch
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import Reply
from tests.support.valkey_server import ValkeyServer

Flush = Callable[[int], Awaitable[None]]
TOKENS = 16
PAYLOAD = encode_events(
    common_pb2.Event(position=n, token=common_pb2.Token(text=" token", units=1)) for n in range(3, 3 + TOKENS)
)


class Listener:
    """Knows up to where everything is confirmed."""

    def __init__(self) -> None:
        self.position = 0
        self.arrived = asyncio.Event()
        self.wanted = 0

    def confirmed(self, position: int) -> None:
        self.position = position
        if position >= self.wanted:
            self.arrived.set()

    def unanswered(self, position: int) -> None:
        """A shared machine may be slow."""

    def stopped(self, reason: StopReason) -> None:
        raise RuntimeError(f"stopped: {reason}")

    def finished(self) -> None:
        """Never here."""


async def measure(flush: Flush, generations: int, flushes: int) -> float:
    """µs of CPU for each append."""
    await flush(0)
    begun = time.process_time()
    for number in range(1, flushes):
        await flush(number)
    return (time.process_time() - begun) / (generations * (flushes - 1)) * 1e6


def _command(generation: int, number: int) -> tuple[str | bytes | int, ...]:
    last = (number + 1) * TOKENS
    key = keys.response(f"g{generation}")
    return ("XADD", key, f"1-{last}", "kind", "tokens", "first", last - TOKENS + 1, "payload", PAYLOAD)


async def packed(link: Link, generations: int) -> Flush:
    """Commands packed and replies counted: what cannot be saved."""
    session = await link.session()

    async def flush(number: int) -> None:
        done = asyncio.get_running_loop().create_future()
        for generation in range(generations - 1):
            session.send(_command(generation, number), _ignore)
        session.send(_command(generations - 1, number), done.set_result)
        await done

    return flush


async def by_hand(link: Link, generations: int) -> Flush:
    """The same with the journal's own packer."""
    session = await link.session()
    channels = [keys.response(f"g{generation}") for generation in range(generations)]
    heads = [head_of(key) for key in channels]
    for key in channels:
        await session.call("XADD", key, "0-1", "kind", "accepted")

    async def flush(number: int) -> None:
        done = asyncio.get_running_loop().create_future()
        last = (number + 1) * TOKENS
        for key, head in zip(channels, heads, strict=True):
            entry = Entry(1, last - TOKENS + 1, last, Kind.TOKENS, PAYLOAD)
            session.send_packed(pack_append(key, head, entry), done.set_result if key is channels[-1] else _ignore)
        await done

    return flush


def _ignore(reply: Reply) -> None:
    if isinstance(reply, hiredis.ReplyError):
        raise reply


async def written(link: Link, generations: int) -> Flush:
    """The writer as a worker uses it: state machine, packing, confirmation."""
    session = await link.session()
    writer = JournalWriter(link, SystemClock())
    lane = keys.lane("w0", "gold")
    writings = []
    listeners = [Listener() for _ in range(generations)]
    for number, listener in enumerate(listeners):
        copy = TaskCopy(f"g{number}", 1, f"r{number}")
        await accept(session, copy.generation, [Entry(0, 1, 1, Kind.ACCEPTED, b"")], 600_000)
        fields = [part for pair in copy.fields().items() for part in pair]
        entry = (await session.call("XADD", lane, "*", *fields)).decode()
        answer = await begin_call(link, copy, Place(lane, entry), "w0", b"", new_epoch)
        assert isinstance(answer, tuple)
        writings.append(writer.open(*answer, listener))
    last = listeners[-1]

    async def flush(number: int) -> None:
        position = 2 + (number + 1) * TOKENS
        last.arrived.clear()
        last.wanted = position
        for writing in writings:
            writing.append(Kind.TOKENS, position, PAYLOAD)
        await last.arrived.wait()

    return flush


async def pipelined(client: Redis, generations: int) -> Flush:
    """redis-py's pipeline."""

    async def flush(number: int) -> None:
        async with client.pipeline(transaction=False) as pipe:
            for generation in range(generations):
                pipe.execute_command(*_command(generation, number))
            await pipe.execute()

    return flush


async def main(generations: int, flushes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            async with TaskScope("benchmark") as scope:
                link = Link(server.url, SystemClock(), reply_timeout_s=60.0)
                scope.spawn(link.run(), "link")
                client = Redis.from_url(server.url)
                figures: dict[str, float] = {}
                arms: dict[str, Callable[[], Awaitable[Flush]]] = {
                    "packed": lambda: packed(link, generations),
                    "packed by hand": lambda: by_hand(link, generations),
                    "writer": lambda: written(link, generations),
                    "redis-py pipeline": lambda: pipelined(client, generations),
                }
                for name, make in arms.items():
                    await client.flushall()
                    figures[name] = await measure(await make(), generations, flushes)
                await client.aclose()
            print(
                f"{generations} generations, {flushes} flushes of {TOKENS} tokens each, {len(PAYLOAD)} bytes an entry"
            )
            for name, cost_us in figures.items():
                ratio = figures["redis-py pipeline"] / cost_us
                print(f"{name:<18} {cost_us:6.2f} µs an append   {cost_us / TOKENS:5.2f} µs a token   {ratio:4.1f} ×")
        finally:
            server.stop()


if __name__ == "__main__":
    generations, flushes = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (500, 60)
    asyncio.run(main(generations, flushes))
