"""All workers as decisions see them: a pool for each model, brought up to date before each decision by what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

from services.router.core.admission import crowded_limit, queue_limit, slots_ahead
from services.router.core.decision import Candidate
from services.router.core.ledger import Ledger
from services.router.core.pool import Pool
from services.router.core.queues import EVERY_LANE, Lanes, Queues
from services.router.core.worker import Worker
from streamway.valkey.keys import CLASSES, TaskClass

# Workers that are looked at in one go: about a tenth of a millisecond, with what was read of them. With 25 at once a request that
# comes meanwhile waited 5 ms at p99, with 8 two.
PART: Final = 8
# Between two parts, so that a request, which takes several turns of the loop, does not meet one in each.
PAUSE_S: Final = 0.001


class Fleet:
    """Workers, what each has in flight, and the pools.

    `queue_limit`: tasks that may wait in each lane of a worker; None: twice its preload depth. `prefill_ms`: what a prompt token
    is assumed to take at a worker that has not said.
    """

    def __init__(self, ledger: Ledger, queue_limit: int | None, prefill_ms: float) -> None:
        self._ledger = ledger
        self._queue_limit = queue_limit
        self._prefill_ms = prefill_ms
        self._workers: dict[str, Worker] = {}
        self._closed: Set[str] = frozenset()
        self._pools: dict[str, Pool] = {}
        # By lane: whose is half full.
        self._crowded: dict[TaskClass, set[str]] = {lane: set() for lane in CLASSES}
        # Load of those with a fresh report for their weight, in tokens a place.
        self._mean_load = 0.0

    @property
    def models(self) -> set[str]:
        """Models that some worker has."""
        return set(self._pools)

    def crowded(self, lane: TaskClass) -> Set[str]:
        """Workers whose lane of this kind is half full, as of the last `pool`."""
        return self._crowded[lane]

    def adopt(self, workers: Sequence[Worker]) -> None:
        """Takes what was learned of all workers at once."""
        for _ in self.adopting(workers):
            pass

    def adopting(self, workers: Sequence[Worker]) -> Iterator[None]:
        """The same in parts, between which decisions can be made.

        Each worker that was known counts as it is now from its part on; who came, went or has another size, from the end on.
        """
        changed = len(workers) != len(self._workers)
        places, load = 0, 0
        for number, worker in enumerate(workers):
            self._ledger.seen(worker)
            known = self._workers.get(worker.id)
            if known is not None and _same_place(known, worker):
                self._workers[worker.id] = worker
                self._put(worker)
            else:
                changed = True
            if not self._ledger.stale(worker.id):
                places += worker.places
                load += self._ledger.load(worker)
            if number % PART == PART - 1:
                yield
        self._mean_load = load / places if places else 0.0
        if changed:
            self._replace(workers)
        else:
            self._update(worker.id for worker in workers if self._ledger.stale(worker.id))

    def close(self, closed: Set[str]) -> None:
        """Others get nothing now, whatever their leases say."""
        changed = self._closed ^ closed
        self._closed = closed
        self._update(changed)

    def pool(self, model: str) -> Pool | None:
        """The workers that serve a model, as of now; None when there are none."""
        self._update(self._ledger.take_changed())
        return self._pools.get(model)

    def _replace(self, workers: Sequence[Worker]) -> None:
        """Another set of workers."""
        self._workers = {worker.id: worker for worker in workers}
        for crowded in self._crowded.values():
            crowded.intersection_update(self._workers)
        members: dict[str, list[Candidate]] = {}
        for worker in workers:
            candidate = self._candidate(worker)
            for model in {served.name for served in worker.models}:
                members.setdefault(model, []).append(candidate)
        self._pools = {model: pool for model, pool in self._pools.items() if model in members}
        for model, candidates in members.items():
            pool = self._pools.setdefault(model, Pool())
            if len(pool) == len(candidates) and all(
                one.worker in pool and pool[one.worker].size == one.size for one in candidates
            ):
                for one in candidates:
                    pool.put(one)
            else:
                pool.replace(candidates)

    def _update(self, workers: Iterable[str]) -> None:
        for id_ in workers:
            worker = self._workers.get(id_)
            if worker is not None:
                self._put(worker)

    def _put(self, worker: Worker) -> None:
        candidate = self._candidate(worker)
        for served in worker.models:
            self._pools[served.name].put(candidate)

    def _candidate(self, worker: Worker) -> Candidate:
        lanes, limit = self._ledger.lanes(worker), queue_limit(self._queue_limit, worker.preload_depth)
        queues = Queues.of(lanes, worker.running, worker.busy, worker.places)
        half_full = queues.full(crowded_limit(limit))
        for lane, crowded in self._crowded.items():
            if lane in half_full:
                crowded.add(worker.id)
            else:
                crowded.discard(worker.id)
        load: float = self._ledger.load(worker)
        if self._ledger.stale(worker.id):
            # Nobody knows. As much as the others have neither draws work there nor keeps it away.
            load = max(self._ledger.own(worker.id), self._mean_load * worker.places)
        return Candidate(
            worker.id,
            worker.places,
            load,
            worker.state == "ready" and worker.id not in self._closed,
            EVERY_LANE if worker.kv_full else queues.full(limit),
            max(0, sum(lanes) + 1 - worker.places) * worker.slot_ms / worker.places,
            worker.prefill_ms or self._prefill_ms,
            worker.kv_full,
            worker.slots,
            self._ahead(worker, lanes, queues),
            worker.slot_ms / worker.places,
        )

    def _ahead(self, worker: Worker, lanes: Lanes, queues: Queues) -> int | None:
        """None while a slot is idle for everybody, and where all are alike."""
        kept = slots_ahead(worker.places)
        if not kept or queues.idle or not any(lanes[1:]):
            return None
        return kept - self._ledger.urgent(worker.id)


def _same_place(known: Worker, worker: Worker) -> bool:
    """Nothing of it has changed that pools are made of."""
    return known.slots == worker.slots and [one.name for one in known.models] == [one.name for one in worker.models]
