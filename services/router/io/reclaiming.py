"""Gives the work of workers that are gone to others.

Each round: who is gone → claim what lies in its lanes, read or not → choose a lane for each copy → settle. Every router does
it; two at once do no harm, since of two copies of one attempt the second to begin is stale.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog
from redis.exceptions import RedisError

from services.router.core.decision import Wanted
from services.router.core.departures import Departures
from services.router.core.needs import TO_GO_ON, unfit
from services.router.core.strategy import Strategy
from services.router.interfaces import WorkerProbe
from services.router.io.breaker_board import BreakerBoard
from services.router.io.registry import Registry
from services.router.metrics import RouterMetrics
from streamway.journal import Drop, Reclaimer, Requeue, Why, read_tail
from streamway.journal.given_up import GivenUp
from streamway.journal.reclaim import decide
from streamway.journal.signals import Place
from streamway.lanes import TaskCopy, give_away
from streamway.lanes.task import MOST_ATTEMPTS
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_epoch, new_secret_id
from streamway.tenancy import TierName
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import known_leases
from streamway.valkey.link import Link
from streamway.valkey.script import Script
from streamway.valkey.session import LinkLost, Session, StoreRefused

_log = structlog.get_logger("router")

_ROUND_S: Final = 0.5
# Lanes in which nothing is expected are looked at so often.
_IDLE_S: Final = 5.0
_LOCK_MS: Final = 2_000
_AT_ONCE: Final = 50
# Tokens a moved task is assumed to have, where only its place matters.
_MOVED_TOKENS: Final = 256

_STORE_FAILURES: Final = (RedisError, OSError, LinkLost, StoreRefused)
# Silence of the store for so long counts as an outage: leases may have ended since nobody could renew them.
_OUTAGE_S: Final = 1.0

# A generation that nobody can go on with, unless somebody said meanwhile how it ended.
_FAIL: Final = Script("""
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'queued' and state ~= 'running' then return 0 end
redis.call('HSET', KEYS[1], 'state', 'failed')
return 1
""")


class _Details(NamedTuple):
    """What the record says."""

    model: str
    session: str
    worker: str
    tenant: str


class Reclaiming:
    """The loop. `me` is this router's id; its lease covers what it has claimed."""

    def __init__(
        self,
        valkey: Valkey,
        link: Link,
        registry: Registry,
        strategy: Strategy,
        breakers: BreakerBoard,
        probe: WorkerProbe,
        clock: Clock,
        metrics: RouterMetrics,
        me: str,
        *,
        lease_s: float,
        finished_ttl_ms: int,
    ) -> None:
        self._valkey = valkey
        self._link = link
        self._registry = registry
        self._strategy = strategy
        self._breakers = breakers
        self._probe = probe
        self._clock = clock
        self._metrics = metrics
        self._departures = Departures(lease_s)
        self._hints: set[str] = set()
        self._wake = asyncio.Event()
        self._looked_at: dict[str, float] = {}
        self._routers: frozenset[str] = frozenset()
        self._workers: frozenset[str] = frozenset()
        self._gone: frozenset[str] = frozenset()
        self._steady = False
        # Where the copies of each generation go that are being moved.
        self._targets: dict[str, str] = {}

        def reclaimer(most_attempts: int) -> Reclaimer:
            return Reclaimer(
                link,
                keys.reclaimer(me),
                lambda copy, lane: self._targets.get(copy.generation, lane),
                new_secret_id,
                new_epoch,
                GivenUp(valkey),
                most_attempts=most_attempts,
                ttl_ms=finished_ttl_ms,
            )

        self._reclaimer = reclaimer(MOST_ATTEMPTS)
        # For tasks whose record is gone: nobody could run them.
        self._undertaker = reclaimer(0)
        link.listen(self)

    # --- LinkListener

    def connected(self, session: Session) -> None:
        """Steadiness begins with the next look."""

    def lost(self) -> None:
        self._departures.unreadable()

    def silent(self) -> None:
        if self._link.quiet_s >= _OUTAGE_S:
            self._departures.unreadable()

    # --- The loop

    def hint(self, worker: str) -> None:
        """A reader has lost this worker. It is asked, and believed to be gone only if it does not answer."""
        if worker not in self._hints and not self._departures.is_silent(worker):
            self._hints.add(worker)
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ROUND_S):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.round()
            except _STORE_FAILURES as problem:
                self._departures.unreadable()
                _log.info("not_reclaimed", problem=type(problem).__name__)

    async def round(self) -> None:
        """One. Raises what the store fails with."""
        if self._link.current is None:
            self._departures.unreadable()
            return
        workers = await known_leases(self._valkey, "worker")
        routers = await known_leases(self._valkey, "router")
        self._routers = frozenset(keys.reclaimer(id_) for id_, alive in routers.items() if alive)
        reported = {worker.id: worker.reported_ms for worker in self._registry.all()}
        self._departures.looked(workers, reported, self._clock.monotonic())
        await self._verify()
        now = self._clock.monotonic()
        self._gone, self._steady = frozenset(self._departures.gone(now)), self._departures.steady(now)
        self._workers = frozenset(id_ for id_, alive in workers.items() if alive and id_ not in self._gone)
        for worker in self._gone:
            await self._clear(worker)
        await self._look_around()

    async def _verify(self) -> None:
        """Asks the workers that readers have lost."""
        hints, self._hints = self._hints, set()
        for id_ in hints:
            worker = self._registry.worker(id_)
            if worker is None or await self._probe.answers(worker.address):
                continue
            _log.warning("worker_silent", worker=id_, address=worker.address)
            self._departures.silent(id_, worker.reported_ms)
            self._registry.suspect(id_)

    async def _clear(self, worker: str) -> None:
        """Takes everything out of the lanes of one that is gone."""
        fresh = f"gone/{worker}" not in self._looked_at
        if not self._due(f"gone/{worker}", _IDLE_S):
            return
        if not await self._valkey.set(keys.sweep(worker), "1", nx=True, px=_LOCK_MS):
            # Another router is at it; look again soon whether it has died over it.
            self._looked_at.pop(f"gone/{worker}", None)
            return
        for class_ in keys.CLASSES:
            await self._take(keys.lane(worker, class_), owner_gone=True)
        if fresh:
            # It may also have taken work from the pools, and what other reclaimers left.
            self._looked_at = {name: at for name, at in self._looked_at.items() if name.startswith("gone/")}

    async def _look_around(self) -> None:
        """Pools, and what a reclaimer that died left pending in the lanes of a worker that came back."""
        for id_ in [name for name in self._looked_at if name.startswith("gone/")]:
            if id_.removeprefix("gone/") in self._workers:
                del self._looked_at[id_]
        if not self._steady:
            return
        for model in {served.name for worker in self._registry.all() for served in worker.models}:
            if self._due(f"pool/{model}", _IDLE_S):
                for class_ in keys.CLASSES:
                    await self._take(keys.pool(model, class_), owner_gone=False)
        for worker in self._workers:
            if self._due(f"lane/{worker}", 2 * _IDLE_S):
                for class_ in keys.CLASSES:
                    await self._take(keys.lane(worker, class_), owner_gone=False)

    def _due(self, what: str, every_s: float) -> bool:
        now = self._clock.monotonic()
        if now - self._looked_at.get(what, -every_s) < every_s:
            return False
        self._looked_at[what] = now
        return True

    async def _take(self, lane: str, *, owner_gone: bool) -> None:
        claimed = await self._reclaimer.claim(lane, self._is_gone, owner_gone=owner_gone)
        if not claimed:
            return
        details = await self._details([copy.generation for copy, _ in claimed])
        try:
            for start in range(0, len(claimed), _AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    for (copy, place), known in list(zip(claimed, details, strict=True))[start : start + _AT_ONCE]:
                        group.create_task(self._move(copy, place, known))
        finally:
            self._targets.clear()
        _log.info("lane_cleared", lane=lane, tasks=len(claimed))

    def _is_gone(self, consumer: str) -> bool:
        if consumer in self._gone:
            return True
        return self._steady and consumer not in self._workers and consumer not in self._routers

    async def _move(self, copy: TaskCopy, place: Place, known: _Details) -> None:
        class_ = keys.class_of(place.lane)
        worker = self._choose(known, class_)
        self._targets[copy.generation] = keys.lane(worker, class_) if worker else keys.pool(known.model, class_)
        try:
            session = await self._link.session()
            tail = await read_tail(session, copy.generation)
            if known.model and isinstance(decide(copy, tail), Requeue):
                await give_away(self._valkey, copy.generation, known.worker, worker)
            fate = await (self._reclaimer if known.model else self._undertaker).settle(copy, place)
            if not isinstance(fate, Requeue) and (not isinstance(fate, Drop) or fate.why is Why.NO_CHANNEL):
                await _FAIL.call(session, keys.generation(copy.generation))
        except _STORE_FAILURES as problem:
            # It is pending under this router's name: the next look has it.
            _log.warning("task_not_moved", generation=copy.generation, problem=type(problem).__name__)
            self._looked_at.clear()
            return
        outcome = {Requeue: "requeued", Drop: "dropped"}.get(type(fate), "given_up")
        self._metrics.moved.labels(outcome).inc()
        _log.info("task_moved", generation=copy.generation, to=worker or "pool", outcome=outcome)

    def _choose(self, known: _Details, lane: keys.TaskClass) -> str:
        """A worker by the strategy; empty where none can take more now: then the pool, for whoever has room first."""
        pool = self._registry.pool(known.model)
        if pool is None:
            return ""
        # What has lost one worker is not given to one that gold is kept from.
        barred = self._breakers.barred(known.model, TierName.GOLD, pool).workers
        # Who begins an answer anew could only end one that has begun.
        barred |= unfit(self._registry.among(pool), TO_GO_ON)
        wanted = Wanted(known.model, known.session, _MOVED_TOKENS, 0, known.tenant, barred=barred, lane=lane)
        return self._strategy.choose(wanted, pool, self._clock.monotonic()).worker

    async def _details(self, generations: Sequence[str]) -> list[_Details]:
        async with self._valkey.pipeline(transaction=False) as pipe:
            for generation in generations:
                pipe.hmget(keys.generation(generation), "model", "session", "worker", "tenant")
            rows = await pipe.execute()
        return [_Details(*((value or b"").decode() for value in row)) for row in rows]
