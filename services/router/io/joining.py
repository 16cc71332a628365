"""Single-flight: an identical request that runs already is read along instead of being run again."""

from __future__ import annotations

import asyncio

from services.router.core import events
from services.router.core.flights import Flight, flight_key
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.books import Books
from services.router.io.journal import Journal
from services.router.io.locating import Locator
from services.router.io.shared_flights import SharedFlights
from services.router.metrics import RouterMetrics
from streamway.errors import Cancelled, StoreUnavailable
from streamway.following import Place, write_follower
from streamway.valkey.session import Session


class Joining:
    """An opener that lets a request follow an identical one of the same tenant, and lets `inner` begin the others.

    While the first is being decided the others wait for that. The first asks
    whether another router runs the same. A follower has its own id, record and end; its events are those of its leader's channel.
    """

    def __init__(
        self,
        inner: Opener,
        books: Books,
        shared: SharedFlights,
        journal: Journal,
        locator: Locator,
        metrics: RouterMetrics,
        limit_bytes: int,
    ) -> None:
        self._inner = inner
        self._books = books
        self._flights = books.flights
        self._shared = shared
        self._journal = journal
        self._locator = locator
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        # Keys of which the first request is being decided.
        self._beginning: dict[bytes, asyncio.Event] = {}

    async def open(self, ask: Ask) -> Opened:
        """Raises what `inner` raises, and Cancelled."""
        # Another model may have been tried before.
        ask.flight = None
        # A turn of a kept context ends for itself: a cancel of its own must not leave it running for others.
        key = flight_key(ask.request, ask.body, self._limit_bytes) if ask.context is None else None
        if key is None:
            return await self._inner.open(ask)
        while True:
            flight = self._flights.find(key, ask.request, ask.failed_leader)
            if flight is not None:
                joined = await self._join(ask, flight)
                return joined if joined is not None else await self._inner.open(ask)
            decided = self._beginning.get(key)
            if decided is None:
                return await self._begin(ask, key)
            await decided.wait()
            if self._flights.find(key, ask.request, ask.failed_leader) is None and key not in self._beginning:
                # The first was refused, or this one may not follow it.
                return await self._begin(ask, key)

    async def _begin(self, ask: Ask, key: bytes) -> Opened:
        decided = self._beginning[key] = asyncio.Event()
        try:
            return await self._join_elsewhere(ask, key) or await self._lead(ask, key)
        finally:
            if self._beginning.get(key) is decided:
                del self._beginning[key]
            decided.set()

    async def _lead(self, ask: Ask, key: bytes) -> Opened:
        ask.flight, generation = key, ask.request.generation
        try:
            return await self._inner.open(ask)
        finally:
            if not self._flights.leads(generation):
                # Refused, or nothing that others could read.
                self._shared.end(key, generation)

    async def _join_elsewhere(self, ask: Ask, key: bytes) -> Opened | None:
        """None: no other router has one that this request may follow."""
        if self._flights.knows(key):
            # It may not follow that one, and the store knows no better.
            return None
        found = await self._shared.enter(key, ask.request, ask.failed_leader)
        if found is None:
            return None
        flight = self._books.adopt(found) if found.suits(ask.request) else None
        try:
            return await self._join(ask, flight) if flight is not None else None
        finally:
            if flight is None or not flight.holders:
                self._books.abandon(flight or found)

    async def _join(self, ask: Ask, flight: Flight) -> Opened | None:
        """None: the leader has failed, or it can't be noted that it is followed, so this one must run for itself."""
        request = ask.request
        if ask.unwanted:
            raise Cancelled
        place = Place(flight.worker, flight.address)
        # From now on the leader's end, or a cancel of all others, finds it there.
        first = not flight.holders
        self._flights.join(flight, request.generation)
        if first:
            self._shared.keep(flight)

        async def write(session: Session) -> bool:
            return await write_follower(session, request, flight.leader, flight.worker)

        try:
            alive = await self._journal.steps(write)
        except StoreUnavailable:
            alive = False
        if not alive:
            self._flights.undo(flight, request.generation)
            return None
        self._metrics.flights.labels("joined").inc()
        told = events.accepted(
            request,
            route="joined",
            cache=ask.cache,
            worker=place.worker,
            source=self._locator.source_of(place),
            durability=request.durability,
            lowered_priority=ask.lowered_priority,
            allowance=ask.allowance,
        )
        told.accepted.follows = flight.leader
        told.accepted.shared = True
        return Opened([told], place, durable=True, follows=flight.leader)
