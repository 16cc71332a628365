"""Single-flight: an identical request that runs already is read along instead of being run again."""

from __future__ import annotations

import asyncio

from services.router.core import events
from services.router.core.flights import Flight, Flights, flight_key
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.journal import Journal
from services.router.io.locating import Locator
from services.router.metrics import RouterMetrics
from streamway.errors import Cancelled, StoreUnavailable
from streamway.following import Place, write_follower
from streamway.valkey.session import Session


class Joining:
    """An opener that lets a request follow an identical one of the same tenant, and lets `inner` begin the others.

    While the first is being decided the others wait for that. A follower has its own id, record and end; its events are those of
    its leader's channel.
    """

    def __init__(
        self,
        inner: Opener,
        flights: Flights,
        journal: Journal,
        locator: Locator,
        metrics: RouterMetrics,
        limit_bytes: int,
    ) -> None:
        self._inner = inner
        self._flights = flights
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
        key = flight_key(ask.request, ask.body, self._limit_bytes)
        if key is None:
            return await self._inner.open(ask)
        while True:
            flight = self._flights.find(key, ask.request, ask.failed_leader)
            if flight is not None:
                joined = await self._join(ask, flight)
                return joined if joined is not None else await self._inner.open(ask)
            decided = self._beginning.get(key)
            if decided is None:
                return await self._lead(ask, key)
            await decided.wait()
            if self._flights.find(key, ask.request, ask.failed_leader) is None and key not in self._beginning:
                # The first was refused, or this one may not follow it.
                return await self._lead(ask, key)

    async def _lead(self, ask: Ask, key: bytes) -> Opened:
        decided = self._beginning[key] = asyncio.Event()
        ask.flight = key
        try:
            return await self._inner.open(ask)
        finally:
            if self._beginning.get(key) is decided:
                del self._beginning[key]
            decided.set()

    async def _join(self, ask: Ask, flight: Flight) -> Opened | None:
        """None: it can't be noted that it follows, so it must run for itself."""
        request = ask.request
        if ask.unwanted:
            raise Cancelled
        place = Place(flight.worker, flight.address)
        # From now on the leader's end, or a cancel of all others, finds it there.
        self._flights.join(flight, request.generation)

        async def write(session: Session) -> None:
            await write_follower(session, request, flight.leader, flight.worker)

        try:
            await self._journal.steps(write)
        except StoreUnavailable:
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
