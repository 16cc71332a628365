"""Gives a generation to a worker."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import structlog

from services.router.core import admission, events
from services.router.core.decision import Decision, Wanted
from services.router.core.estimate import wanted_of
from services.router.core.needs import needs, unfit
from services.router.core.pool import Pool
from services.router.core.strategy import Strategy
from services.router.core.worker import Worker
from services.router.interfaces import Ask, Opened
from services.router.io.books import Books
from services.router.io.breaker_board import BreakerBoard
from services.router.io.journal import Journal, TaskInDoubt
from services.router.io.locating import Locator
from services.router.io.registry import Registry
from services.router.io.session_notes import SessionNotes
from services.router.metrics import RouterMetrics
from streamway.errors import (
    Cancelled,
    DuplicateId,
    GenerationNotFound,
    ModelNotFound,
    NoWorkers,
    QueueFull,
    StoreUnavailable,
    StreamwayError,
)
from streamway.following import Place
from streamway.lanes import NewTask, TaskCopy
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_secret_id
from streamway.tenancy import TierName
from streamway.v1 import common_pb2

_log = structlog.get_logger("router")


class Placing:
    """The innermost opener: asks the strategy, opens the channel, puts the task into the worker's lane, keeps the books."""

    def __init__(
        self,
        registry: Registry,
        strategy: Strategy,
        notes: SessionNotes,
        journal: Journal,
        locator: Locator,
        books: Books,
        clock: Clock,
        metrics: RouterMetrics,
        breakers: BreakerBoard,
        *,
        expected_output_tokens: int,
    ) -> None:
        self._registry = registry
        self._strategy = strategy
        self._notes = notes
        self._journal = journal
        self._locator = locator
        self._books = books
        self._clock = clock
        self._metrics = metrics
        self._breakers = breakers
        self._expected = expected_output_tokens

    async def open(self, ask: Ask) -> Opened:
        """Raises ModelNotFound, NoWorkers, QueueFull, StoreUnavailable, DuplicateId, Cancelled."""
        if ask.unwanted:
            raise Cancelled
        request = ask.request
        wanted = wanted_of(request, ask.size_bytes, ask.body, self._expected, blocks=self._strategy.wants_blocks)
        await self._recall(wanted)
        if ask.unwanted:
            raise Cancelled
        tier = ask.tenant.tier if ask.tenant is not None else TierName.GOLD
        worker, decision = self._choose(ask, wanted, tier)
        ask.breaker = self._breakers.state(worker.id, request.model, tier)
        # The worker counts the same.
        request.load_tokens = decision.tokens
        place = Place(worker.id, worker.address)
        told = events.accepted(
            request,
            route=decision.branch,
            reason=decision.reason,
            cache=ask.cache,
            worker=worker.id,
            source=self._locator.source_of(place),
            queue_position=admission.queue_position(self._registry.tasks(worker), worker.places),
            durability=request.durability,
            lowered_priority=ask.lowered_priority,
            allowance=ask.allowance,
        )
        told.accepted.shared = ask.flight is not None
        self._books.reserve(ask, place, decision.tokens, self._breakers.placed(worker.id, request.model, tier))
        try:
            return await self._place(ask, place, told)
        except StreamwayError:
            self._books.settle(request.generation)
            raise

    async def _place(self, ask: Ask, place: Place, told: common_pb2.Event) -> Opened:
        """The channel first: a worker that reads the task finds it, and whoever comes back after our death does too."""
        request = ask.request
        durable = request.durability != common_pb2.DURABILITY_OFF
        copy = TaskCopy(request.generation, 1, new_secret_id())
        task = NewTask(request, place.worker, copy, self._now_ms(), shared=ask.flight is not None)
        began = self._clock.monotonic()
        try:
            if not await self._journal.give(task, told if durable else None):
                again = await self._again(ask)
                if again is not None:
                    return again
                await self._journal.give(task, None)
        except StoreUnavailable:
            if ask.needs_store:
                raise
            return self._hand_over(ask, place, told)
        except TaskInDoubt:
            # The worker must not run it for nobody.
            self._books.cancel_at(place, request.generation)
            raise StoreUnavailable from None
        self._metrics.dispatch.observe(self._clock.monotonic() - began)
        self._books.follow(ask, place)
        return Opened([told], place, durable=durable)

    def _hand_over(self, ask: Ask, place: Place, told: common_pb2.Event) -> Opened:
        """Without the store: straight to the worker, and nothing of it will survive the worker."""
        request = ask.request
        request.durability = told.accepted.durability = common_pb2.DURABILITY_OFF
        ask.flight, told.accepted.shared = None, False
        self._books.hand_over(request, place, self._now_ms())
        self._books.follow(ask, place)
        self._metrics.inline.inc()
        return Opened([told], place)

    async def _again(self, ask: Ask) -> Opened | None:
        """The channel was there: a router that is gone accepted this generation before it could say so. None: it came no
        further than that, and the task is still to be given away."""
        request = ask.request
        try:
            known = await self._locator.known(request.generation, request.tenant)
        except GenerationNotFound:
            if await self._journal.look(request.generation) is not None:
                # Somebody else's.
                raise DuplicateId(request.generation) from None
            return None
        self._books.settle(request.generation)
        told = events.accepted(
            request,
            route="home",
            cache=ask.cache,
            worker=known.worker,
            source=self._locator.source_of(known.place),
            durability=known.durability,
            attached_to=request.generation,
        )
        return Opened([told], known.place, request.generation, durable=known.durable)

    async def _recall(self, wanted: Wanted) -> None:
        """Where a session is that this router has not seen: another one may have."""
        if wanted.session and not self._strategy.knows(wanted, self._clock.monotonic()):
            stay = await self._notes.recall(wanted)
            if stay is not None:
                self._strategy.learn(wanted, stay)

    def _choose(self, ask: Ask, wanted: Wanted, tier: TierName) -> tuple[Worker, Decision]:
        model, pool = wanted.model, self._registry.pool(wanted.model)
        if pool is None:
            known = self._registry.all()
            if not known and not self._registry.readable:
                raise StoreUnavailable
            if self._registry.served_lately(model):
                raise NoWorkers(model)
            raise ModelNotFound(model, sorted({served.name for worker in known for served in worker.models}))
        barred = self._barred(wanted, tier, pool) | self._unfit(ask, pool)
        wanted = replace(wanted, barred=wanted.barred | barred)
        now = self._clock.monotonic()
        decision = ask.decision = self._strategy.choose(wanted, pool, now)
        self._metrics.decisions.labels(decision.branch, decision.reason).inc()
        worker = self._registry.worker(decision.worker)
        if worker is None:
            if decision.full:
                raise QueueFull(model, admission.retry_after_s(self._registry.ends_per_s(list(pool))))
            raise NoWorkers(model)
        self._notes.note(wanted, self._strategy.placed(wanted, decision, now))
        _log.debug("placed", worker=worker.id, branch=decision.branch, reason=decision.reason, tokens=decision.tokens)
        return worker, decision

    def _barred(self, wanted: Wanted, tier: TierName, pool: Pool) -> Set[str]:
        """Whom it must not go to: those that the breakers keep it from. Where breakers are ignored, a lane that is half full is
        full: the rest is shed."""
        barred = self._breakers.barred(wanted.model, tier, pool)
        return barred.workers | self._registry.crowded(wanted.lane) if barred.panic else barred.workers

    def _unfit(self, ask: Ask, pool: Pool) -> Set[str]:
        """Workers whose engine is known not to do what is asked for."""
        needed = needs(ask.request, ask.body)
        return unfit(self._registry.among(pool), needed) if needed else needed

    def _now_ms(self) -> int:
        return int(self._clock.unix() * 1000)
