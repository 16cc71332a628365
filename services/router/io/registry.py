"""The workers: looked up each half second; while the store is away kept for a while, and then asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Set

import structlog

from services.router.core.fleet import PAUSE_S, Fleet
from services.router.core.ledger import Ledger
from services.router.core.pool import Pool
from services.router.core.strategy import Strategy
from services.router.core.wanted import Wanted
from services.router.core.worker import Worker
from services.router.interfaces import WorkerProbe, WorkerSource
from services.router.metrics import RouterMetrics
from streamway.errors import StoreUnavailable
from streamway.runtime.clock import Clock
from streamway.valkey.keys import TaskClass

_log = structlog.get_logger("router")
_STATES = ("ready", "draining", "unhealthy")
# A model whose last worker vanished so recently is out of order, not unknown: its clients may try again.
_MODEL_MEMORY_S = 300.0


class Registry:
    """The last known workers and what each has in flight."""

    def __init__(
        self,
        source: WorkerSource,
        ledger: Ledger,
        fleet: Fleet,
        strategy: Strategy,
        probe: WorkerProbe,
        clock: Clock,
        metrics: RouterMetrics,
        *,
        poll_s: float,
        keep_s: float,
        most_workers: int = 0,
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._fleet = fleet
        self._strategy = strategy
        self._probe = probe
        self._clock = clock
        self._metrics = metrics
        self._poll_s = poll_s
        self._keep_s = keep_s
        self._wanted = Wanted(most_workers)
        self._asked_for = 0
        self._workers: dict[str, Worker] = {}
        # Found silent, with what their lease said then: no new work until they renew it.
        self._suspects: dict[str, float] = {}
        self._models_seen: dict[str, float] = {}
        self._read_at = self._asked_at = clock.monotonic()
        self.readable = False

    def worker(self, id_: str) -> Worker | None:
        """One worker, if its lease is alive."""
        return self._workers.get(id_)

    def reachable(self, id_: str) -> Worker | None:
        """One worker, if its lease is alive and it was not found silent since it renewed that."""
        return self._workers.get(id_) if id_ not in self._suspects else None

    def suspect(self, id_: str) -> None:
        """It did not answer: it gets nothing more until it renews its lease."""
        worker = self._workers.get(id_)
        if worker is not None:
            self._suspects[id_] = worker.reported_ms
            self._fleet.close(set(self._suspects))

    def all(self) -> list[Worker]:
        """Every known worker."""
        return list(self._workers.values())

    def among(self, ids: Iterable[str]) -> list[Worker]:
        """Those of these that are known."""
        return [worker for id_ in ids if (worker := self._workers.get(id_)) is not None]

    def served_lately(self, model: str) -> bool:
        """Some worker has, or had a few minutes ago, this model; also while no worker at all is known."""
        return model in self._models_seen or not self._workers

    def pool(self, model: str) -> Pool | None:
        """The workers that serve a model, as a strategy wants them; None when there are none."""
        return self._fleet.pool(model)

    def crowded(self, lane: TaskClass) -> Set[str]:
        """Workers whose lane of this kind is half full, as of the last `pool`."""
        return self._fleet.crowded(lane)

    def tasks(self, worker: Worker) -> int:
        """Tasks of a worker now: in its lanes, waiting, running."""
        return self._ledger.tasks(worker)

    def ends_per_s(self, workers: list[str]) -> float:
        """Generations that ended a second on these workers together, lately."""
        return self._ledger.rate(workers)

    async def refresh(self) -> None:
        """Looks once. What cannot be read keeps its last state for `keep_s`, and from then on as long as it answers itself."""
        try:
            await self._look()
        finally:
            self._tell_ages()

    async def _look(self) -> None:
        now = self._clock.monotonic()
        try:
            workers = await self._source.read()
        except StoreUnavailable:
            if self.readable:
                _log.warning("workers_unreadable")
            self.readable = False
            # Their reports grow old meanwhile.
            await self._adopt(list(self._workers.values()))
            if now - max(self._read_at, self._asked_at) > self._keep_s and self._workers:
                await self._ask()
                self._asked_at = self._clock.monotonic()
            return
        self.readable, self._read_at = True, now
        await self._adopt(workers)

    async def run(self) -> None:
        """Looks again and again until cancelled. A look at very many workers takes a part of the interval, never all."""
        pause_s = self._poll_s
        while True:
            await asyncio.sleep(pause_s)
            began = self._clock.monotonic()
            await self.refresh()
            pause_s = max(self._poll_s / 4, self._poll_s - (self._clock.monotonic() - began))

    async def _ask(self) -> None:
        """Keeps the workers that answer."""
        there: dict[str, bool] = {}

        async def ask(worker: Worker) -> None:
            there[worker.id] = await self._probe.answers(worker.address)

        async with asyncio.TaskGroup() as group:
            for worker in self._workers.values():
                group.create_task(ask(worker))
        await self._adopt([worker for worker in self._workers.values() if there[worker.id]])

    async def _adopt(self, workers: list[Worker]) -> None:
        """In parts, so that a look at a thousand workers holds up no decision."""
        before, now_ids = self._workers, {worker.id for worker in workers}
        self._ledger.age(self._now_ms())
        for _ in self._fleet.adopting(workers):
            await asyncio.sleep(PAUSE_S)
        self._workers = {worker.id: worker for worker in workers}
        # Whoever was found silent and is silent still; what has been found meanwhile too.
        self._suspects = {
            id_: said
            for id_, said in self._suspects.items()
            if id_ in now_ids and self._workers[id_].reported_ms == said
        }
        self._fleet.close(set(self._suspects))
        # Decisions are right from here on; the rest is books, each of them a few tenths of a millisecond for a thousand.
        await asyncio.sleep(0)
        self._note_changes(before)
        await asyncio.sleep(0)
        self._ledger.keep_only(now_ids)
        self._strategy.keep_only(self._fleet.models, now_ids)
        now = self._clock.monotonic()
        self._models_seen = {name: at for name, at in self._models_seen.items() if now - at < _MODEL_MEMORY_S}
        self._models_seen |= dict.fromkeys(self._fleet.models, now)
        await asyncio.sleep(0)
        self._metrics.kv_full.set(sum(worker.kv_full for worker in workers))
        self._tell_wanted(workers)
        states = Counter(worker.state for worker in workers)
        for state in _STATES:
            self._metrics.workers.labels(state).set(states[state])
        await asyncio.sleep(0)

    def _note_changes(self, before: dict[str, Worker]) -> None:
        for worker in self._workers.values():
            known = before.get(worker.id)
            if known is None or known.state != worker.state:
                _log.info("worker_seen", worker=worker.id, state=worker.state, address=worker.address)
        for id_ in before.keys() - self._workers.keys():
            _log.info("worker_gone", worker=id_)

    def _tell_wanted(self, workers: list[Worker]) -> None:
        wanted = self._wanted.look(workers)
        if wanted > len(workers) and self._asked_for != wanted:
            # Another one on a machine that is full would only fill it sooner.
            full = sorted({worker.address.rpartition(":")[0] for worker in workers if worker.memory_pressed})
            _log.warning("workers_wanted", there=len(workers), wanted=wanted, short_of_memory=full)
        self._asked_for = wanted
        self._metrics.workers_wanted.set(wanted)

    def _tell_ages(self) -> None:
        self._metrics.stale_reports.set(sum(self._ledger.stale(id_) for id_ in self._workers))
        self._metrics.report_age.set(self._ledger.report_age_ms(self._now_ms()) / 1000)

    def _now_ms(self) -> float:
        return self._clock.unix() * 1000
