"""What following in the store adds: from an append to the reader that hears of it, many channels on one blocking connection.

`python -m benchmarks.followers [CHANNELS] [SECONDS] [PER_S]`: CHANNELS (500) are followed by one `Follower` in this process;
another connection appends PER_S (1,000) entries a second to random ones for SECONDS (10). Prints milliseconds; the goal is 5 ms
at p99. The append's own round trip is shown beside it, since it is the floor.
"""

from __future__ import annotations

import asyncio
import functools
import random
import sys
import tempfile
import time
from pathlib import Path

from streamway.journal import Cursor, Follower, Kind, accept, encode_events
from streamway.journal.entries import Entry
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from tests.support.valkey_server import ValkeyServer

_TTL_MS = 600_000


class Listener:
    """Knows when each of its entries was sent."""

    def __init__(self, waits: list[float]) -> None:
        self.sent: dict[int, float] = {}
        self._waits = waits

    def entries(self, entries: list[Entry]) -> None:
        now = time.perf_counter()
        for entry in entries:
            begun = self.sent.pop(entry.last, None)
            if begun is not None:
                self._waits.append(now - begun)

    def interrupted(self) -> None:
        raise RuntimeError("the store broke the connection")


async def main(channels: int, seconds: float, per_s: float) -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            async with TaskScope("benchmark") as scope:
                await _measure(server.url, scope, channels, seconds, per_s)
        finally:
            server.stop()


async def _measure(url: str, scope: TaskScope, channels: int, seconds: float, per_s: float) -> None:
    clock = SystemClock()
    links = [Link(url, clock), Link(url, clock), Link(url, clock, silence_s=60.0, reply_timeout_s=60.0)]
    tasks = [scope.spawn(link.run(), "link") for link in links]
    writing, ordinary, blocking = links
    follower = Follower(blocking, ordinary)
    tasks.append(scope.spawn(follower.run(), "follower"))
    session = await writing.session()
    payload = encode_events([common_pb2.Event(position=2, token=common_pb2.Token(text=" token", units=1))])
    waits: list[float] = []
    trips: list[float] = []
    listeners = [Listener(waits) for _ in range(channels)]
    first = Entry(0, 1, 1, Kind.ACCEPTED, payload)
    for number, listener in enumerate(listeners):
        await accept(session, f"g{number}", [first], _TTL_MS)
        follower.follow(f"g{number}", Cursor(0, 1), listener)
    await asyncio.sleep(0.5)
    positions = [1] * channels
    begun = time.perf_counter()
    done = 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        while done < elapsed * per_s:
            done += 1
            number = random.randrange(channels)
            positions[number] += 1
            position = positions[number]
            sent = listeners[number].sent[position] = time.perf_counter()
            command = ("XADD", keys.response(f"g{number}"), "NOMKSTREAM", f"1-{position}", "kind", "tokens")
            entry = ("first", position, "payload", payload)
            session.send((*command, *entry), functools.partial(_returned, trips, sent))
        await asyncio.sleep(0.001)
    async with asyncio.timeout(10):
        while any(listener.sent for listener in listeners):
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    print(f"{channels} channels on one connection, {done / seconds:.0f} appends/s, ms   p50    p99    max")
    for name, found in (("append until confirmed", trips), ("append until its reader has it", waits)):
        ordered = sorted(found)
        figures = (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])
        print(f"  {name:32}" + "".join(f"{figure * 1000:7.2f}" for figure in figures))


def _returned(trips: list[float], sent: float, _: object) -> None:
    trips.append(time.perf_counter() - sent)


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    values = given + [500.0, 10.0, 1000.0][len(given) :]
    asyncio.run(main(int(values[0]), values[1], values[2]))
