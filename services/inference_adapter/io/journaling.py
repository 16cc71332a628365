"""What all journaled generations of a worker share: the link to the store, the writer of channels, and moving tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Set
from dataclasses import replace
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.io.books import Books
from services.inference_adapter.io.peers import Peers, lane_for
from streamway.errors import Cancelled
from streamway.following import read_record
from streamway.journal import (
    Begun,
    Drop,
    GiveUp,
    JournalWriter,
    Kind,
    Place,
    Reclaimer,
    Why,
    Writing,
    WritingListener,
    begin_call,
    read_tail,
)
from streamway.journal.ending import end_unrun, error_payload
from streamway.journal.entries import attempt_of, encode_events
from streamway.journal.functions import Done, Gone, Stale
from streamway.journal.given_up import GivenUp
from streamway.lanes import EarlierCall, TakenTask, TaskCopy, give_away
from streamway.lanes.task import MOST_ATTEMPTS
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_epoch, new_secret_id
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link
from streamway.valkey.session import LinkLost, Session, StoreRefused

_log = structlog.get_logger("adapter")

_REFUSED_PAUSE_S: Final = 0.25


class Journaling:
    """Begins engine calls, writes their channels, and gives tasks to other workers.

    `strict_pause_s`: how long a strict generation waits for a silent store. `live_ttl_ms` and `finished_ttl_ms`: how long a
    channel outlives its last renewal, and its end.
    """

    def __init__(
        self,
        link: Link,
        valkey: Valkey,
        books: Books,
        peers: Peers,
        scope: TaskScope,
        clock: Clock,
        worker: str,
        *,
        strict_pause_s: float,
        live_ttl_ms: int,
        finished_ttl_ms: int,
    ) -> None:
        self._link = link
        self._valkey = valkey
        self._scope = scope
        self._worker = worker
        self._live_ttl_ms = live_ttl_ms
        self._finished_ttl_ms = finished_ttl_ms
        self._targets: dict[str, str] = {}
        self._writer = JournalWriter(link, clock, live_ttl_ms=live_ttl_ms, finished_ttl_ms=finished_ttl_ms)
        self._reclaimer = Reclaimer(
            link,
            worker,
            lambda copy, lane: self._targets.get(copy.generation, lane),
            new_secret_id,
            new_epoch,
            GivenUp(valkey),
            ttl_ms=finished_ttl_ms,
        )
        self.books = books
        self.peers = peers
        self.strict_pause_s = strict_pause_s

    def __len__(self) -> int:
        """Channels that are written."""
        return len(self._writer)

    async def run(self) -> None:
        """Holds the link, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run(), name="link")
            group.create_task(self._writer.run(), name="journal")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs something for a generation."""
        return self._scope.spawn(work, name)

    async def begin(self, task: TakenTask, started: common_pb2.Event) -> tuple[Begun, Session] | Done | Gone | Stale:
        """Begins an engine call; waits while the store is away or takes nothing."""
        payload = encode_events([started])
        while True:
            try:
                return await begin_call(
                    self._link, task.copy, place_of(task), self._worker, payload, new_epoch, self._live_ttl_ms
                )
            except StoreRefused as refused:
                _log.warning("begin_refused", generation=task.copy.generation, problem=str(refused)[:100])
                await asyncio.sleep(_REFUSED_PAUSE_S)

    def open(self, begun: Begun, session: Session, listener: WritingListener) -> Writing:
        """The channel of a call that has begun."""
        return self._writer.open(begun, session, listener)

    def close(self, writing: Writing) -> None:
        """Forgets a channel: it is not written any more."""
        self._writer.close(writing)

    def may_move(self, copy: TaskCopy, model: str) -> bool:
        """Whether another worker could go on with a task, after `peers.look`."""
        return copy.failures + 1 < MOST_ATTEMPTS and self.peers.serve(model)

    async def settle(
        self,
        copy: TaskCopy,
        place: Place,
        model: str,
        *,
        mine: bool,
        planned: bool = False,
        but: Set[str] = frozenset(),
    ) -> None:
        """Does with a copy what is right by its channel: drops it, or gives it to another worker as the next attempt.

        `mine`: nobody else has begun as far as this worker knows, so its readers are sent to where the task goes. `planned`: that
        this call came to nothing is not the task's fault. `but`: who must not get it. Never raises; waits while the store is
        away.
        """
        while True:
            worker = await self._choose(copy.generation, model, mine=mine, but=but)
            self._targets[copy.generation] = lane_for(worker, model, keys.class_of(place.lane))
            try:
                fate = await self._reclaimer.settle(copy, place, planned=planned)
            except StoreRefused as refused:
                _log.warning("task_not_settled", generation=copy.generation, problem=str(refused)[:100])
                await asyncio.sleep(_REFUSED_PAUSE_S)
                continue
            finally:
                self._targets.pop(copy.generation, None)
            if isinstance(fate, GiveUp) or (isinstance(fate, Drop) and fate.why is Why.NO_CHANNEL):
                # Nobody goes on with it.
                self.books.state(copy.generation, "failed")
            if not isinstance(fate, Drop):
                _log.info("task_moved", generation=copy.generation, to=worker or "pool", fate=type(fate).__name__)
            return

    async def pass_on(self, task: TakenTask, model: str, *, degraded: bool = False) -> None:
        """Gives a task that has not begun to another worker, as the same attempt; a degraded one to any. Never raises."""
        copy, place = task.copy, place_of(task)
        while True:
            worker = "" if degraded else await self._choose(copy.generation, model, mine=True)
            lane = lane_for(worker, model, task.class_)
            fresh = replace(copy, ref=new_secret_id(), degraded=degraded)
            try:
                await self._replace(place, fresh, lane)
            except LinkLost:
                continue
            except StoreRefused as refused:
                _log.warning("task_not_passed_on", generation=copy.generation, problem=str(refused)[:100])
                await asyncio.sleep(_REFUSED_PAUSE_S)
                continue
            _log.info("task_passed_on", generation=copy.generation, to=worker or "pool")
            return

    async def retry_elsewhere(self, task: TakenTask, model: str, before: tuple[EarlierCall, ...], but: Set[str]) -> str:
        """Gives a task without a channel to a worker that is not in `but`, as the next attempt; "" where there is none.

        `before`: the calls there were. Nothing of this worker's may be written into its record any more. Raises LinkLost,
        StoreRefused, RedisError or OSError: then it may have been given away or not.
        """
        copy = task.copy
        worker = self.peers.choose(model, but)
        if worker:
            await give_away(self._valkey, copy.generation, self._worker, worker)
            fresh = TaskCopy(copy.generation, copy.attempt + 1, new_secret_id(), copy.excused, before=before)
            await self._replace(place_of(task), fresh, lane_for(worker, model, task.class_))
            _log.info("task_moved", generation=copy.generation, to=worker, fate="retry")
        return worker

    async def _replace(self, place: Place, fresh: TaskCopy, lane: str) -> None:
        """First add, then acknowledge, on one connection: if it broke between, the store may have lost what was added."""
        session = await self._link.session()
        await session.call("XADD", lane, "*", *[part for pair in fresh.fields().items() for part in pair])
        session.send(("MULTI",), _ignore)
        session.send(("XACK", place.lane, keys.LANE_GROUP, place.entry), _ignore)
        session.send(("XDEL", place.lane, place.entry), _ignore)
        await session.call("EXEC")

    async def end(self, generation: str, error: Cancelled) -> None:
        """Ends in its channel what another worker has, or will have: that one is fenced. Never raises; waits while the store
        is away."""
        payload = error_payload(error)
        while True:
            try:
                session = await self._link.session()
                tail = await read_tail(session, generation)
                if tail is None or tail.entry.kind is Kind.END:
                    return
                epoch = new_epoch(attempt_of(tail.entry.epoch) + 1)
                answer = await end_unrun(
                    session, generation, epoch, new_secret_id(), self._worker, payload, self._finished_ttl_ms
                )
            except LinkLost:
                continue
            except StoreRefused as refused:
                _log.warning("cancel_not_carried_over", generation=generation, problem=str(refused)[:100])
                await asyncio.sleep(_REFUSED_PAUSE_S)
                continue
            if not isinstance(answer, Stale):
                self.books.state(generation, "cancelled")
                _log.info("cancel_carried_over", generation=generation)
                return

    async def end_moved(self, generation: str, tenant: str | None, error: Cancelled) -> None:
        """The same for one that was here and is gone, if it is this tenant's (None: anybody's)."""
        if tenant is not None:
            try:
                record = await read_record(await self._link.session(), generation)
            except (LinkLost, StoreRefused):
                return
            if record is None or record.tenant != tenant:
                return
        await self.end(generation, error)

    async def _choose(self, generation: str, model: str, *, mine: bool, but: Set[str] = frozenset()) -> str:
        try:
            await self.peers.look(model)
            worker = self.peers.choose(model, but)
            if mine:
                await give_away(self._valkey, generation, self._worker, worker)
        except (RedisError, OSError):
            return ""
        return worker


def place_of(task: TakenTask) -> Place:
    """Where a task lies."""
    return Place(task.lane, task.entry)


def _ignore(_: Any) -> None:
    """For replies that change nothing."""
