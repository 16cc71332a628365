"""Gives a generation to a worker."""

from __future__ import annotations

from services.router.core import admission, events
from services.router.core.estimate import tokens_in_flight
from services.router.core.ring import Branch, select
from services.router.core.worker import Worker
from services.router.interfaces import Ask, Opened, Place
from services.router.io.books import Books
from services.router.io.dispatch import Dispatcher
from services.router.io.registry import Registry
from services.router.metrics import RouterMetrics
from streamway.errors import Cancelled, ModelNotFound, NoWorkers, QueueFull, StoreUnavailable
from streamway.lanes import NewTask, TaskCopy
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_secret_id


class Placing:
    """The innermost opener: chooses by the ring, puts the task into that worker's lane, keeps the books."""

    def __init__(
        self,
        registry: Registry,
        dispatcher: Dispatcher,
        books: Books,
        clock: Clock,
        metrics: RouterMetrics,
        *,
        factor: float,
        floor: int,
        expected_output_tokens: int,
    ) -> None:
        self._registry = registry
        self._dispatcher = dispatcher
        self._books = books
        self._clock = clock
        self._metrics = metrics
        self._factor = factor
        self._floor = floor
        self._expected = expected_output_tokens

    async def open(self, ask: Ask) -> Opened:
        """Raises ModelNotFound, NoWorkers, QueueFull, StoreUnavailable, Cancelled."""
        if ask.cancelled:
            raise Cancelled
        request = ask.request
        tokens = tokens_in_flight(ask.size_bytes, request, ask.body, self._expected)
        worker, branch = self._choose(request.model, request.session, tokens)
        queue_position = admission.queue_position(self._registry.tasks(worker), worker.slots)
        place = Place(worker.id, worker.address)
        self._books.reserve(request.generation, place, request.tenant, tokens)
        began = self._clock.monotonic()
        task = NewTask(request, worker.id, TaskCopy(request.generation, 1, new_secret_id()), self._now_ms())
        try:
            await self._dispatcher.add(task)
        except StoreUnavailable:
            self._books.settle(request.generation)
            # The copy may have arrived although no answer did: the worker must not run it for nobody.
            self._books.cancel_at(place, request.generation)
            raise
        self._metrics.dispatch.observe(self._clock.monotonic() - began)
        self._books.follow(ask, place)
        told = events.accepted(
            request,
            route=branch,
            cache=ask.cache,
            worker=worker.id,
            source=worker.address,
            queue_position=queue_position,
        )
        return Opened([told], place)

    def _choose(self, model: str, session: str, tokens: int) -> tuple[Worker, Branch]:
        candidates = self._registry.candidates(model)
        if not candidates:
            known = self._registry.all()
            if not known and not self._registry.readable:
                raise StoreUnavailable
            if self._registry.served_lately(model):
                raise NoWorkers(model)
            raise ModelNotFound(model, sorted({served.name for worker in known for served in worker.models}))
        decision = select(self._registry.ring, session, tokens, candidates, factor=self._factor, floor=self._floor)
        self._metrics.decisions.labels(decision.branch).inc()
        worker = self._registry.worker(decision.worker)
        if worker is None:
            if decision.full:
                raise QueueFull(model, admission.retry_after_s(self._registry.ends_per_s(list(candidates))))
            raise NoWorkers(model)
        return worker, decision.branch

    def _now_ms(self) -> int:
        return int(self._clock.unix() * 1000)
