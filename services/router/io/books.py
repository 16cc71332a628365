"""The books of what is in flight: settled when the worker says how a generation ended, or is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from services.router.core.breakers import Call
from services.router.core.events import TERMINAL
from services.router.core.flights import Flight, Flights, Leaving
from services.router.core.ledger import Ledger
from services.router.interfaces import AnswerCache, Ask, Charges
from services.router.io.breaker_board import BreakerBoard
from services.router.io.second_ends import SecondEnds
from services.router.io.shared_flights import SharedFlights
from services.router.metrics import RouterMetrics
from streamway.attach import AttachPool
from streamway.errors import EventsExpired, StreamwayError, from_status
from streamway.following import Place
from streamway.journal import Cursor
from streamway.runtime.clock import Clock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import View
from streamway.valkey.keys import task_class

# `accepted` is ours, the worker's first event has position 2.
AFTER_ACCEPTED = Cursor(0, 1)


@dataclass(frozen=True, slots=True)
class Booked:
    """A generation in flight."""

    place: Place
    tenant: str
    model: str
    session: str
    durability: common_pb2.Durability.ValueType
    digest: str
    call: Call

    @property
    def durable(self) -> bool:
        """It has a channel."""
        return self.durability != common_pb2.DURABILITY_OFF


class Books:
    """Every generation this router dispatched, until its end is known.

    It reads only the terminal event of each, or the whole answer after the end when it is to be stored. Nothing depends on
    them but the estimate of a worker's load, and finding what was given away while the store was away: a new router begins
    with empty ones.
    """

    def __init__(
        self,
        ledger: Ledger,
        pool: AttachPool,
        cache: AnswerCache,
        clock: Clock,
        metrics: RouterMetrics,
        most_bytes: int,
        suspect: Callable[[str], None],
        charges: Sequence[Charges],
        breakers: BreakerBoard,
        second_ends: SecondEnds,
        flights: Flights,
        shared: SharedFlights,
        scope: TaskScope,
    ) -> None:
        self._ledger = ledger
        self._pool = pool
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._suspect = suspect
        self._charges = charges
        self._breakers = breakers
        self._second_ends = second_ends
        self.flights = flights
        self._shared = shared
        self._scope = scope
        self._open: dict[str, Booked] = {}

    def __contains__(self, generation: str) -> bool:
        return generation in self._ledger

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def moved(self) -> int:
        """Generations that their first worker has no more, and whose end at another one is waited for."""
        return len(self._second_ends)

    def entry(self, generation: str) -> Booked | None:
        """A generation that is in flight here."""
        return self._open.get(generation)

    def reserve(self, ask: Ask, place: Place, tokens: int, call: Call) -> None:
        """Counts a generation before it is dispatched, so that the next decision sees it. `call` is what breakers are told of."""
        request = ask.request
        lane = task_class(request.priority, request.entitlement.tier)
        self._ledger.add(request.generation, place.worker, tokens, self._clock.unix() * 1000, lane)
        booked = Booked(place, request.tenant, request.model, request.session, request.durability, ask.digest, call)
        self._open[request.generation] = booked
        self._metrics.generations.set(len(self._ledger))

    def follow(self, ask: Ask, place: Place) -> None:
        """Waits for the end of a dispatched generation, which others may join until then."""
        if ask.flight is not None:
            flight = self.flights.begin(ask.flight, ask.request, place.worker, place.address)
            if flight is not None:
                self._shared.keep(flight)
            self._metrics.flights.labels("led").inc()
        view = View.VIEW_COMPLETE if ask.keep else View.VIEW_OUTCOME
        outcome = _Outcome(self, ask.request, place.worker, ask.keep, self._most_bytes)
        self._pool.client(place.address, place.worker).subscribe(ask.request.generation, AFTER_ACCEPTED, view, outcome)

    def adopt(self, found: Flight) -> Flight | None:
        """A leader of another router that may be followed here until its end. None: there are too many."""
        known = self.flights.leads(found.leader)
        flight = self.flights.adopt(found)
        if flight is not None and not known:
            client = self._pool.client(flight.address, flight.worker)
            client.subscribe(flight.leader, AFTER_ACCEPTED, View.VIEW_OUTCOME, _FlightEnd(self, flight.leader))
        return flight

    def abandon(self, flight: Flight) -> None:
        """Nobody here wants it any more. Where no other router's clients do, its engine's call is aborted."""
        self._scope.spawn(self._abandon(flight), "flight-leave")

    async def _abandon(self, flight: Flight) -> None:
        if await self._shared.leave(flight) and not flight.holders:
            self.cancel_at(Place(flight.worker, flight.address), flight.leader)

    def hand_over(self, request: common_pb2.GenerationRequest, place: Place, created_ms: int) -> None:
        """Gives a task to its worker on our stream. `request` says by now that nothing of it will be kept."""
        self._open[request.generation] = replace(self._open[request.generation], durability=request.durability)
        self._pool.client(place.address, place.worker).run(request, created_ms)

    def answered(self, generation: str) -> None:
        """Its channel has an answer from the cache: its worker lets go of it, and nobody pays for an engine."""
        booked = self._open.get(generation)
        if booked is not None:
            self._pool.client(booked.place.address, booked.place.worker).answered(generation)
        for each in self._charges:
            each.overtaken(generation)
        self.settle(generation)

    def settle(self, generation: str) -> None:
        """It was never dispatched, or nobody will know how it ended."""
        call = self._close(generation)
        if call is not None:
            self._breakers.unknown(call)

    def _close(self, generation: str) -> Call | None:
        self._ledger.settle(generation)
        self.end_flight(generation)
        booked = self._open.pop(generation, None)
        self._metrics.generations.set(len(self._ledger))
        return booked.call if booked is not None else None

    def cancel(self, generation: str, tenant: str | None) -> bool:
        """Passes a cancel on to the worker; False when the tenant (None: any) has nothing of that name in flight here.

        What others still follow goes on.
        """
        leaving, flight = self.flights.leave(generation, tenant)
        if leaving is Leaving.STAYS:
            return True
        if flight is not None:
            self.abandon(flight)
            return True
        booked = self._open.get(generation)
        if booked is None or tenant not in (None, booked.tenant):
            return False
        self.cancel_at(booked.place, generation)
        return True

    def end_flight(self, leader: str) -> None:
        """Nobody follows it any more that does not yet, here and elsewhere."""
        flight = self.flights.end(leader)
        if flight is not None:
            self._shared.end(flight.key, leader)

    def cancel_at(self, place: Place, generation: str) -> None:
        """Passes a cancel on to a worker, whether or not the books know the generation."""
        self._pool.client(place.address, place.worker).cancel(generation)

    def lost(self, generation: str, worker: str, error: StreamwayError) -> None:
        """Its worker is gone. If another goes on with it, that one reports its load itself."""
        self._suspect(worker)
        booked = self._open.get(generation)
        self._leave(generation, goes_on=booked is not None and booked.durable)
        call = self._close(generation)
        if call is not None:
            self._breakers.failed(call, error)

    def unseen(self, generation: str) -> None:
        """How it ended is not known here."""
        self._abandon_charges(generation)
        self.settle(generation)

    def ended(self, generation: str, event: common_pb2.Event) -> None:
        """It has ended with this event, or its worker has left it to another one."""
        error = from_status(event.error.status) if event.HasField("error") else None
        if isinstance(error, EventsExpired):
            self._leave(generation, goes_on=bool(error.metadata.get("moved")))
        else:
            for each in self._charges:
                each.ended(generation, event)
        call = self._close(generation)
        if call is None:
            return
        if error is not None:
            self._breakers.failed(call, error)
        else:
            self._breakers.finished(call)

    def _leave(self, generation: str, *, goes_on: bool) -> None:
        """Its worker has it no more. `goes_on`: another one may have."""
        booked = self._open.get(generation)
        if booked is None or not goes_on or not self._second_ends.follow(generation, booked.call.spot):
            self._abandon_charges(generation)

    def _abandon_charges(self, generation: str) -> None:
        for each in self._charges:
            each.abandon(generation)

    def store(self, request: common_pb2.GenerationRequest, events: list[common_pb2.Event]) -> None:
        """Offers an answer to the cache."""
        self._cache.store(request, events)


class _Outcome:
    """An AttachSink that settles, and stores what is to be stored."""

    def __init__(
        self, books: Books, request: common_pb2.GenerationRequest, worker: str, keep: bool, most_bytes: int
    ) -> None:
        self._books = books
        self._worker = worker
        self._generation = request.generation
        self._request = request if keep else None
        self._left_bytes = most_bytes
        self._events: list[common_pb2.Event] = []

    def event(self, event: common_pb2.Event, kind: str) -> None:
        if self._request is not None:
            self._left_bytes -= event.ByteSize()
            if self._left_bytes < 0:
                self._request = None
                self._events.clear()
            else:
                self._events.append(event)
        if kind in TERMINAL:
            self._books.ended(self._generation, event)
            if kind == "finished" and self._request is not None:
                self._books.store(self._request, self._events)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self._books.lost(self._generation, self._worker, error)

    def gap(self) -> None:
        """The worker has not all of the answer, so it is not stored."""
        self._books.unseen(self._generation)


class _FlightEnd:
    """An AttachSink for a leader that another router has in its books."""

    def __init__(self, books: Books, leader: str) -> None:
        self._books = books
        self._leader = leader

    def event(self, event: common_pb2.Event, kind: str) -> None:
        if kind in TERMINAL:
            self._books.end_flight(self._leader)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self._books.end_flight(self._leader)

    def gap(self) -> None:
        self._books.end_flight(self._leader)
