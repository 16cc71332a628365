"""The books of what is in flight: settled when the worker says how a generation ended, or is lost."""

from __future__ import annotations

from services.router.core.events import TERMINAL
from services.router.core.ledger import Ledger
from services.router.interfaces import AnswerCache, Ask, Place
from services.router.metrics import RouterMetrics
from streamway.attach import AttachPool
from streamway.errors import StreamwayError
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import View

# `accepted` is ours, the worker's first event has position 2.
AFTER_ACCEPTED = 1


class Books:
    """Every generation this router dispatched, until its end is known.

    It reads only the terminal event of each, or the whole answer after the end when it is to be stored.
    """

    def __init__(
        self,
        ledger: Ledger,
        pool: AttachPool,
        cache: AnswerCache,
        clock: Clock,
        metrics: RouterMetrics,
        most_bytes: int,
    ) -> None:
        self._ledger = ledger
        self._pool = pool
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._open: dict[str, tuple[Place, str]] = {}

    def __contains__(self, generation: str) -> bool:
        return generation in self._ledger

    def __len__(self) -> int:
        return len(self._ledger)

    def reserve(self, generation: str, place: Place, tenant: str, tokens: int) -> None:
        """Counts a generation before it is dispatched, so that the next decision sees it."""
        self._ledger.add(generation, place.worker, tokens, self._clock.unix() * 1000)
        self._open[generation] = (place, tenant)
        self._metrics.generations.set(len(self._ledger))

    def follow(self, ask: Ask, place: Place) -> None:
        """Waits for the end of a dispatched generation."""
        view = View.VIEW_COMPLETE if ask.keep else View.VIEW_OUTCOME
        outcome = _Outcome(self, ask.request, ask.keep, self._most_bytes)
        self._pool.client(place.address, place.worker).subscribe(ask.request.generation, AFTER_ACCEPTED, view, outcome)

    def settle(self, generation: str) -> None:
        """It has ended, or was never dispatched."""
        self._ledger.settle(generation)
        self._open.pop(generation, None)
        self._metrics.generations.set(len(self._ledger))

    def cancel(self, generation: str, tenant: str | None) -> bool:
        """Passes a cancel on to the worker; False when the tenant (None: any) has nothing of that name in flight here."""
        place, owner = self._open.get(generation, (None, ""))
        if place is None or tenant not in (None, owner):
            return False
        self.cancel_at(place, generation)
        return True

    def cancel_at(self, place: Place, generation: str) -> None:
        """Passes a cancel on to a worker, whether or not the books know the generation."""
        self._pool.client(place.address, place.worker).cancel(generation)

    def store(self, request: common_pb2.GenerationRequest, events: list[common_pb2.Event]) -> None:
        """Offers an answer to the cache."""
        self._cache.store(request, events)


class _Outcome:
    """An AttachSink that settles, and stores what is to be stored."""

    def __init__(self, books: Books, request: common_pb2.GenerationRequest, keep: bool, most_bytes: int) -> None:
        self._books = books
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
            self._books.settle(self._generation)
            if kind == "finished" and self._request is not None:
                self._books.store(self._request, self._events)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self._books.settle(self._generation)
