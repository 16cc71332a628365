"""Where a generation is: by its channel, its record and the workers that can be reached; without the store by our own books."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from services.router.io.books import Booked, Books
from services.router.io.journal import Journal, Known
from services.router.io.records import STATES
from services.router.io.registry import Registry
from streamway.errors import Cancelled, GenerationNotFound, StoreUnavailable
from streamway.following import Located, Place
from streamway.journal import Kind
from streamway.journal.ending import end_unrun, error_payload
from streamway.journal.entries import attempt_of
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_epoch, new_secret_id
from streamway.v1 import common_pb2, journal_pb2
from streamway.v1.router_pb2 import GenerationState
from streamway.valkey.session import Session

_FIRST_LOOK_S: Final = 0.03
_LAST_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What is known of a generation. `worker` is the one it was given to, `place` where it can be read, if it can.

    `followed`: others read the same events.
    """

    state: GenerationState.ValueType
    worker: str
    place: Place | None
    model: str
    session: str
    tenant: str
    durability: common_pb2.Durability.ValueType
    epoch: int = 0
    cursor: str = ""
    ended: bool = False
    followed: bool = False

    @property
    def durable(self) -> bool:
        return self.durability not in (common_pb2.DURABILITY_OFF, common_pb2.DURABILITY_UNSPECIFIED)


class Locator:
    """Finds and cancels generations, also those of other routers. Is a `following.Locate`.

    `relayed_at` gives the address that readers are sent to instead of the worker's; "" for the worker's own. `suspect` is told
    of workers that a reader has lost.
    """

    def __init__(
        self,
        journal: Journal,
        registry: Registry,
        books: Books,
        clock: Clock,
        relayed_at: Callable[[], str],
        suspect: Callable[[str], None],
        name: str,
    ) -> None:
        self._journal = journal
        self._registry = registry
        self._books = books
        self._clock = clock
        self._relayed_at = relayed_at
        self._suspect = suspect
        self._name = name

    def source_of(self, place: Place | None) -> str:
        """Where a reader of a generation at `place` must attach; empty without one."""
        if place is None:
            return ""
        return self._relayed_at() or place.address

    async def __call__(
        self, generation: str, tenant: str, *, wait_s: float, above_epoch: int, lost_worker: str
    ) -> Located:
        """See the port."""
        known = await self.wait(generation, tenant, wait_s=wait_s, above_epoch=above_epoch, lost_worker=lost_worker)
        return Located(known.place, known.epoch, known.ended, known.durable, known.worker)

    async def wait(
        self, generation: str, tenant: str, *, wait_s: float, above_epoch: int, lost_worker: str
    ) -> Whereabouts:
        """Looks until a worker that can be reached has the generation beyond `above_epoch`, or it has ended, or the time is up.

        Raises GenerationNotFound; StoreUnavailable only when the store has been away all the time.
        """
        if lost_worker:
            self._suspect(lost_worker)
        until = self._clock.monotonic() + wait_s
        pause_s = _FIRST_LOOK_S
        while True:
            left_s = until - self._clock.monotonic()
            try:
                known = await self.known(generation, tenant, lost_worker=lost_worker)
                if left_s <= 0 or known.ended or self._moved(known, above_epoch, lost_worker):
                    return known
            except StoreUnavailable:
                if left_s <= 0:
                    raise
            await asyncio.sleep(min(pause_s, max(0.0, left_s)))
            pause_s = min(pause_s * 1.5, _LAST_LOOK_S)

    async def known(self, generation: str, tenant: str | None, *, lost_worker: str = "") -> Whereabouts:
        """What is known now. Another tenant's generation is as unknown as none; None asks for any tenant's.

        Raises GenerationNotFound, StoreUnavailable.
        """
        try:
            found = await self._journal.look(generation)
        except StoreUnavailable:
            booked = self._books.entry(generation)
            if booked is None:
                raise
            if tenant not in (None, booked.tenant):
                raise GenerationNotFound(generation) from None
            return _from_books(booked)
        if found is None or tenant not in (None, found.record.tenant):
            booked = self._books.entry(generation)
            if found is None and booked is not None and tenant in (None, booked.tenant):
                # Given to its worker while the store was away.
                return _from_books(booked)
            raise GenerationNotFound(generation)
        if found.record.follows:
            leader = await self.known(found.record.follows, tenant, lost_worker=lost_worker)
            return replace(leader, session=found.record.session, followed=True)
        return self._whereabouts(found, lost_worker)

    async def cancel(self, generation: str, tenant: str | None) -> GenerationState.ValueType:
        """Cancels it wherever it is. What no worker that can be reached has is ended in its channel.

        Raises GenerationNotFound, StoreUnavailable.
        """
        passed_on = self._books.cancel(generation, tenant)
        known = await self.known(generation, tenant)
        if known.ended or passed_on or known.followed:
            # Who else reads it is known to the router that took it; if that is gone, it ends when nobody reads it any more.
            return known.state
        if known.place is not None:
            self._books.cancel_at(known.place, generation)
        elif known.durable:
            await self._end(generation, known.epoch)
        return known.state

    async def _end(self, generation: str, epoch: int) -> None:
        payload = error_payload(Cancelled())
        fresh = new_epoch(attempt_of(epoch) + 1)

        async def end(session: Session) -> None:
            ttl_ms = self._journal.finished_ttl_ms
            await end_unrun(session, generation, fresh, new_secret_id(), self._name, payload, ttl_ms)

        await self._journal.steps(end)

    def _whereabouts(self, found: Known, lost_worker: str) -> Whereabouts:
        record = found.record
        # The record is changed when a task is moved, the channel when it begins. Either may be ahead.
        worker, place = record.worker or found.writer, None
        for candidate in (record.worker, found.writer):
            reached = self._registry.reachable(candidate) if candidate and candidate != lost_worker else None
            if reached is not None:
                worker, place = candidate, Place(candidate, reached.address)
                break
        return Whereabouts(
            state=_state(found),
            worker=worker,
            # Without a channel its worker has the answer for a while after its end, and nobody else ever.
            place=None if found.ended and record.durable else place,
            model=record.model,
            session=record.session,
            tenant=record.tenant,
            durability=record.durability,
            epoch=found.epoch,
            cursor=str(found.tail.entry.id) if found.tail is not None else "",
            ended=found.ended,
            followed=record.shared == "2",
        )

    def _moved(self, known: Whereabouts, above_epoch: int, lost_worker: str) -> bool:
        if known.place is None:
            return False
        return known.epoch > above_epoch or (bool(lost_worker) and known.place.worker != lost_worker)


def _state(found: Known) -> GenerationState.ValueType:
    """The worker writes the channel first and the record after it."""
    state = STATES.get(found.record.state, GenerationState.GENERATION_STATE_UNSPECIFIED)
    if found.record.ended or found.tail is None or found.tail.entry.kind is not Kind.END:
        return state
    events = journal_pb2.JournalPayload.FromString(found.tail.entry.payload).events
    if events and events[-1].HasField("finished"):
        return GenerationState.GENERATION_STATE_FINISHED
    return GenerationState.GENERATION_STATE_FAILED


def _from_books(booked: Booked) -> Whereabouts:
    return Whereabouts(
        state=GenerationState.GENERATION_STATE_RUNNING,
        worker=booked.place.worker,
        place=booked.place,
        model=booked.model,
        session=booked.session,
        tenant=booked.tenant,
        durability=booked.durability,
    )
