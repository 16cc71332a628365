"""The workers of one model with what decisions need of all of them, kept up to date change by change.

A decision over a thousand workers must not look at each: the sums are kept, and who is least loaded is a `Tournament` for each
lane that was ever asked for, since a worker may be full in one and not in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from services.router.core.decision import Candidate
from services.router.core.tournament import NEVER, Tournament
from streamway.valkey.keys import TaskClass


class Pool(Mapping[str, Candidate]):
    """Candidates by worker id. `total` and `weights` are sums over the open ones.

    `sizes` has every worker's size; it is another object after each `replace`, and never changes.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._candidates: dict[str, Candidate] = {}
        self._least: dict[TaskClass, Tournament] = {}
        self._open = 0
        self._total = 0.0
        self.weights = 0.0
        self.sizes: Mapping[str, float] = {}
        self.replace(candidates)

    def __getitem__(self, worker: str) -> Candidate:
        return self._candidates[worker]

    def __iter__(self) -> Iterator[str]:
        return iter(self._candidates)

    def __len__(self) -> int:
        return len(self._candidates)

    @property
    def total(self) -> float:
        """Tokens in flight on the open ones."""
        return self._total

    @property
    def open(self) -> int:
        """Those that take work, or would if their queue were not full."""
        return self._open

    @property
    def any_open(self) -> bool:
        """Somebody takes work, or would if its queue were not full."""
        return self._open > 0

    def replace(self, candidates: Iterable[Candidate]) -> None:
        """Another set of workers, or of sizes."""
        self._candidates = {candidate.worker: candidate for candidate in candidates}
        self._least = {}
        self._open, self._total, self.weights = 0, 0.0, 0.0
        self.sizes = {worker: candidate.size or candidate.weight for worker, candidate in self._candidates.items()}
        for candidate in self._candidates.values():
            self._count(candidate, 1)

    def put(self, candidate: Candidate) -> None:
        """A change of one that is in the pool. Raises KeyError for another."""
        self._count(self._candidates[candidate.worker], -1)
        self._candidates[candidate.worker] = candidate
        self._count(candidate, 1)
        for lane, least in self._least.items():
            least.set(candidate.worker, _standing(candidate, lane))

    def least(self, lane: TaskClass = "gold", barred: Set[str] = frozenset()) -> Candidate | None:
        """The least loaded for its size that takes work of this lane and is not barred."""
        found = self._standings(lane).least()
        if found is None:
            return None
        if found not in barred:
            return self._candidates[found]
        # Few are ever barred; only when the best one is does anybody look at all.
        takers = (one for one in self._candidates.values() if one.takes(lane) and one.worker not in barred)
        return min(takers, key=lambda one: (one.pressure, one.worker), default=None)

    def _count(self, candidate: Candidate, sign: int) -> None:
        if candidate.open:
            self._open += sign
            self._total += sign * candidate.load
            self.weights += sign * candidate.weight

    def _standings(self, lane: TaskClass) -> Tournament:
        found = self._least.get(lane)
        if found is None:
            found = self._least[lane] = Tournament(self._candidates)
            for candidate in self._candidates.values():
                found.set(candidate.worker, _standing(candidate, lane))
        return found


def _standing(candidate: Candidate, lane: TaskClass) -> float:
    return candidate.pressure if candidate.takes(lane) else NEVER
