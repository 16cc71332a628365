"""How generations end that their first worker has not ended: one that was retried, handed over, or lost with its worker.

    worker A: "moved" ──► record, channel: where is it now? ──► its end at worker B, or in the channel
                          again and again, for `wait_s`         judged by B's breakers, as any first end

The store is asked only of what was moved, and only of so many at a time: breakers judge by ten calls, and a worker that dies may
leave thousands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from services.router.core.breakers import Call, Spot
from services.router.core.events import TERMINAL
from services.router.core.moved import holder
from services.router.interfaces import Charges
from services.router.io.breaker_board import BreakerBoard
from services.router.io.journal import Journal, Known
from services.router.io.registry import Registry
from streamway.attach import AttachPool
from streamway.errors import EventsExpired, StoreUnavailable, StreamwayError, from_status
from streamway.following import Place
from streamway.journal import Cursor, Kind
from streamway.journal.entries import decode_events
from streamway.runtime.clock import Clock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import View

_AFTER_ACCEPTED: Final = Cursor(0, 1)
_MOST: Final = 200
# A task is retried twice and taken over a few times; beyond that something is wrong with it.
_MOST_MOVES: Final = 6
_FIRST_LOOK_S: Final = 0.05
_LAST_LOOK_S: Final = 1.0


class _Found(NamedTuple):
    """Where a generation is, or its last event where that is written already."""

    worker: str
    address: str
    event: common_pb2.Event | None


class SecondEnds:
    """Tells breakers and `charges` how generations end at the workers that have got them after their first.

    Those that are not found within `wait_s` are given up: they count nowhere, and their charges are abandoned.
    """

    def __init__(
        self,
        journal: Journal,
        registry: Registry,
        pool: AttachPool,
        breakers: BreakerBoard,
        charges: Sequence[Charges],
        scope: TaskScope,
        clock: Clock,
        wait_s: float,
    ) -> None:
        self._journal = journal
        self._registry = registry
        self._pool = pool
        self._breakers = breakers
        self._charges = charges
        self._scope = scope
        self._clock = clock
        self._wait_s = wait_s
        self._followed: set[str] = set()

    def __len__(self) -> int:
        """Generations that are followed."""
        return len(self._followed)

    def follow(self, generation: str, left: Spot) -> bool:
        """Follows what `left` has not any more. False: there are too many; nobody will be told of its end."""
        if len(self._followed) >= _MOST or generation in self._followed:
            return False
        self._followed.add(generation)
        self._scope.spawn(self._run(generation, left), "second-end")
        return True

    async def _run(self, generation: str, left: Spot) -> None:
        try:
            event = await self._end(generation, left)
        finally:
            self._followed.discard(generation)
        for each in self._charges:
            if event is not None:
                each.ended(generation, event)
            else:
                each.abandon(generation)

    async def _end(self, generation: str, left: Spot) -> common_pb2.Event | None:
        """Its last event; None where nobody sees that."""
        for _ in range(_MOST_MOVES):
            found = await self._find(generation, left.worker)
            if found is None:
                return None
            spot = left._replace(worker=found.worker)
            if found.event is not None:
                self._judge(Call(spot, 0), _error(found.event))
                return found.event
            call = self._breakers.placed(*spot)
            event = await self._read(Place(found.worker, found.address), generation)
            error = event if isinstance(event, StreamwayError) else _error(event)
            self._judge(call, error)
            if isinstance(event, common_pb2.Event) and not isinstance(error, EventsExpired):
                return event
            left = spot
        return None

    def _judge(self, call: Call, error: StreamwayError | None) -> None:
        if error is None:
            self._breakers.finished(call)
        else:
            self._breakers.failed(call, error)

    async def _read(self, place: Place, generation: str) -> common_pb2.Event | StreamwayError:
        """Its last event at that worker, or why there is none."""
        outcome = _Outcome(asyncio.get_running_loop().create_future())
        client = self._pool.client(place.address, place.worker)
        number = client.subscribe(generation, _AFTER_ACCEPTED, View.VIEW_OUTCOME, outcome)
        try:
            return await outcome.told
        finally:
            client.unsubscribe(number)

    async def _find(self, generation: str, left: str) -> _Found | None:
        until, pause_s = self._clock.monotonic() + self._wait_s, _FIRST_LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                known = await self._journal.look(generation)
            except StoreUnavailable:
                pass
            else:
                if known is None:
                    return None
                found = self._where(known, left)
                if found is not None or known.ended:
                    return found
            if self._clock.monotonic() >= until:
                return None
            pause_s = min(1.5 * pause_s, _LAST_LOOK_S)

    def _where(self, known: Known, left: str) -> _Found | None:
        written = known.tail is not None and known.tail.entry.kind is Kind.END
        worker = holder(left, known.record.worker, known.writer, ended=written, there=self._there)
        reached = self._registry.reachable(worker)
        if reached is None:
            return None
        if known.tail is None or not written:
            return _Found(worker, reached.address, None)
        try:
            events = decode_events(known.tail.entry)
        except DecodeError:
            return None
        return _Found(worker, "", events[-1]) if events else None

    def _there(self, worker: str) -> bool:
        return self._registry.reachable(worker) is not None


class _Outcome:
    """An AttachSink that waits for the one event there is."""

    def __init__(self, told: asyncio.Future[common_pb2.Event | StreamwayError]) -> None:
        self.told = told

    def event(self, event: common_pb2.Event, kind: str) -> None:
        if kind in TERMINAL and not self.told.done():
            self.told.set_result(event)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        if not self.told.done():
            self.told.set_result(error)

    def gap(self) -> None:
        if not self.told.done():
            self.told.set_result(EventsExpired(""))


def _error(event: common_pb2.Event) -> StreamwayError | None:
    return from_status(event.error.status) if event.HasField("error") else None
