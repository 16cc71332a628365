"""A worker with lanes, leases and a journal, and no engine: it writes numbered words at a pace.

The answer to every request is "w0 w1 w2 … " whoever makes it, so that a continued one can be compared as a whole.
"""

from __future__ import annotations

import asyncio
from typing import Any

from streamway.config import SharedSettings
from streamway.following.page import events_of
from streamway.journal import Begun, JournalWriter, Kind, Place, Writing, begin_call, encode_events, rebuild
from streamway.lanes import LaneReader, TakenTask, own_lanes, pool_lanes
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_epoch
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.connection import blocking_client
from streamway.valkey.link import Link
from tests.support.router_mesh import Worker


def words(number: int) -> str:
    """What `number` tokens say."""
    return "".join(f"w{index} " for index in range(number))


class JournalingWorker(Worker):
    """`tokens` words, one each `pace_s`. `taking` False: tasks stay unread in its lanes."""

    def __init__(self, url: str, id_: str, shared: SharedSettings, *, tokens: int = 20, pace_s: float = 0.02) -> None:
        # The project's own clients: those of redis-py may swallow a cancel.
        self._valkey = blocking_client(url)
        super().__init__(self._valkey, self._valkey, id_, shared, lease_s=3.0)
        self.tokens = tokens
        self.pace_s = pace_s
        self.taking = True
        self.began: list[tuple[str, int]] = []
        self._pool = LaneReader(self._valkey, self._valkey, id_, pool_lanes(["m"]))
        self._link = Link(url, SystemClock())
        self._journal = JournalWriter(self._link, SystemClock())
        self._scope = TaskScope(id_)
        self.dead = False

    async def start(self) -> None:
        await super().start()
        await self._pool.open()
        self._scope.spawn(self._link.run(), "link")
        self._scope.spawn(self.lease.hold(), "lease")
        self._scope.spawn(self._work(), "work")
        self._scope.spawn(self._beat(), "beat")

    async def stop(self) -> None:
        """Dies: no goodbye, the lease is left to end."""
        self.dead = True
        await self._scope.close()
        await super().stop()
        await self._valkey.aclose()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.hand.beat()

    async def _work(self) -> None:
        while True:
            if self.taking:
                for reader in (self.lane, self._pool):
                    for task in await reader.take(dict.fromkeys(keys.CLASSES, 100)):
                        self._scope.spawn(self._run(task), "run")
            await asyncio.sleep(0.01)

    async def _run(self, task: TakenTask) -> None:
        payload = encode_events([common_pb2.Event(started=common_pb2.Started(worker=self.id))])
        place = Place(task.lane, task.entry)
        answer = await begin_call(self._link, task.copy, place, self.id, payload, new_epoch)
        if not isinstance(answer, tuple):
            await (self.lane if task.lane in own_lanes(self.id) else self._pool).finish([task])
            return
        begun, session = answer
        generation = task.copy.generation
        self.began.append((generation, task.copy.attempt))
        teller = _Teller(self, generation, begun)
        teller.writing = self._journal.open(begun, session, teller)
        try:
            said = rebuild(begun.before).get(0)
            for index in range(said.units if said else 0, self.tokens):
                if generation in self.hand.cancelled:
                    break
                teller.say(common_pb2.Event(token=common_pb2.Token(text=f"w{index} ", units=1)), Kind.TOKENS)
                await asyncio.sleep(self.pace_s)
            usage = common_pb2.Usage(completion_tokens=self.tokens)
            teller.say(common_pb2.Event(finished=common_pb2.Finished(finish_reason="stop", usage=usage)), Kind.END)
            await teller.done.wait()
        finally:
            self._journal.close(teller.writing)


class _Teller:
    """A WritingListener that delivers what is confirmed."""

    def __init__(self, worker: JournalingWorker, generation: str, begun: Begun) -> None:
        self._worker = worker
        self._generation = generation
        self._epoch = begun.epoch
        self._position = begun.begin.last
        self._waiting: list[common_pb2.Event] = []
        self.writing: Any = None
        self.done = asyncio.Event()
        before = [event for entry in (*begun.before, begun.begin) for event in events_of(entry)]
        worker.hand.events.pop(generation, None)
        worker.hand.push(generation, *before)

    def say(self, event: common_pb2.Event, kind: Kind) -> None:
        self._position += 1
        writing: Writing = self.writing
        payload = encode_events([event])
        event.position, event.epoch = self._position, self._epoch
        self._waiting.append(event)
        writing.append(kind, self._position, payload)

    def confirmed(self, position: int) -> None:
        ready = [event for event in self._waiting if event.position <= position]
        self._waiting = self._waiting[len(ready) :]
        if ready:
            self._worker.hand.push(self._generation, *ready)

    def unanswered(self, position: int) -> None:
        """Strict."""

    def stopped(self, reason: object) -> None:
        self.done.set()

    def finished(self) -> None:
        self.done.set()
