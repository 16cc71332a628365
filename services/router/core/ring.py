"""Where a session goes: consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016), docs/design.md §6.

Each worker has 160 points on a circle of 64-bit hashes. A session's key is a place on it; clockwise from there, the first
worker that has room takes it:

    load + mine ≤ max(1.25 × (total + mine) × weight / Σ weights, 4 × mine)

Loads are tokens in flight, weights are slots. The first term keeps everyone near the mean; the second lets a quiet mesh
keep sessions at home.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import xxhash


class Branch(StrEnum):
    """Why a worker was chosen; a label of metrics and of `Accepted.route`."""

    HOME = "home"  # the key's own worker
    SPILL = "spill"  # home is over its bound, or its queue is full
    MOVED = "moved"  # home takes no work now: it drains or is unhealthy
    NO_KEY = "no_key"  # nothing to hash: least loaded
    NONE_ELIGIBLE = "none_eligible"  # nobody can take it


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that serves the model. `open`: it takes work. `full`: its queue is at the limit."""

    worker: str
    weight: float
    load: float
    open: bool = True
    full: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """`worker` is empty when nobody can take it; then `full` tells whether queues are why."""

    worker: str
    branch: Branch
    full: bool = False


class Ring:
    """The circle for one set of workers. Immutable; make a new one when the set changes."""

    def __init__(self, workers: Iterable[str], vnodes: int = 160) -> None:
        self.workers = frozenset(workers)
        points = sorted(
            (xxhash.xxh3_64_intdigest(f"{worker}#{number}".encode()), worker)
            for worker in self.workers
            for number in range(vnodes)
        )
        self._hashes = [point for point, _ in points]
        self._owners = [owner for _, owner in points]

    def walk(self, key: str) -> Iterator[str]:
        """Every worker once, clockwise from the key's place."""
        start = bisect_left(self._hashes, xxhash.xxh3_64_intdigest(key.encode()))
        seen: set[str] = set()
        for step in range(len(self._owners)):
            owner = self._owners[(start + step) % len(self._owners)]
            if owner not in seen:
                seen.add(owner)
                yield owner
                if len(seen) == len(self.workers):
                    return


def bound(mine: float, total: float, share: float, factor: float, floor: int) -> float:
    """Most tokens in flight a worker with this share of the weights may have, `mine` included."""
    return max(factor * (total + mine) * share, floor * mine)


def select(
    ring: Ring,
    key: str,
    mine: float,
    candidates: Mapping[str, Candidate],
    *,
    factor: float = 1.25,
    floor: int = 4,
) -> Decision:
    """Chooses among `candidates`, by worker id. `mine` is the request in tokens; an empty `key` means it has none."""
    takers = [candidate for candidate in candidates.values() if candidate.open]
    roomy = [candidate for candidate in takers if not candidate.full]
    if not roomy:
        return Decision("", Branch.NONE_ELIGIBLE, full=bool(takers))
    least = min(roomy, key=lambda candidate: (candidate.load / candidate.weight, candidate.worker))
    if not key:
        return Decision(least.worker, Branch.NO_KEY)
    total = sum(candidate.load for candidate in takers)
    weights = sum(candidate.weight for candidate in takers)
    home: Candidate | None = None
    chosen = least
    for worker in ring.walk(key):
        candidate = candidates.get(worker)
        if candidate is None:
            continue
        home = home or candidate
        if not candidate.open or candidate.full:
            continue
        if candidate.load + mine <= bound(mine, total, candidate.weight / weights, factor, floor):
            chosen = candidate
            break
    if home is None or chosen.worker == home.worker:
        return Decision(chosen.worker, Branch.HOME)
    return Decision(chosen.worker, Branch.SPILL if home.open else Branch.MOVED)
