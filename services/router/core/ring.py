"""Where a session's home is, and who comes after: consistent hashing, docs/design.md §6.

Each worker has 160 points on a circle of 64-bit hashes. A session's key is a place on it; its home is the owner of the first
point clockwise from there, and who takes what home cannot are the next owners.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

import xxhash


class Ring:
    """The circle for one set of workers. Every router with the same set has the same one."""

    def __init__(self, workers: Iterable[str] = (), vnodes: int = 160) -> None:
        self._vnodes = vnodes
        self.workers: frozenset[str] = frozenset()
        # Sorted, and whose each is. That two workers have one place will not happen with 64 bits; the lower name would have it.
        self._points: list[int] = []
        self._owners: dict[int, str] = {}
        self.adopt(dict.fromkeys(workers, 1.0))

    def adopt(self, workers: Mapping[str, float]) -> None:
        """Another set of workers, with their weights, which a ring takes no account of: bounds do.

        Only the points of who came or went are looked at; the runs between them are copied whole. With a thousand workers that
        is a millisecond, where sorting all points would hold up a hundred decisions.
        """
        wanted = frozenset(workers)
        gone = {
            point for worker in self.workers - wanted for point in self._places(worker) if self._owners[point] == worker
        }
        for point in gone:
            del self._owners[point]
        come: list[int] = []
        for worker in wanted - self.workers:
            for point in self._places(worker):
                owner = self._owners.get(point)
                if owner is None:
                    come.append(point)
                self._owners[point] = worker if owner is None else min(owner, worker)
        self._points = _merged(_without(self._points, sorted(gone)), sorted(come))
        self.workers = wanted

    def walk(self, key: str) -> Iterator[str]:
        """Every worker once, clockwise from the key's place."""
        points, owners = self._points, self._owners
        start = bisect_left(points, xxhash.xxh3_64_intdigest(key.encode()))
        seen: set[str] = set()
        for step in range(len(points)):
            owner = owners[points[(start + step) % len(points)]]
            if owner not in seen:
                seen.add(owner)
                yield owner
                if len(seen) == len(self.workers):
                    return

    def _places(self, worker: str) -> Iterator[int]:
        return (xxhash.xxh3_64_intdigest(f"{worker}#{number}".encode()) for number in range(self._vnodes))


def _without(points: list[int], gone: list[int]) -> list[int]:
    """Both sorted; `gone` are some of `points`."""
    left: list[int] = []
    at = 0
    for point in gone:
        next_ = bisect_left(points, point, at)
        left += points[at:next_]
        at = next_ + 1
    return left + points[at:] if gone else points


def _merged(points: list[int], come: list[int]) -> list[int]:
    """Both sorted, none in both."""
    if len(come) > len(points):
        points, come = come, points
    both: list[int] = []
    at = 0
    for point in come:
        next_ = bisect_left(points, point, at)
        both += points[at:next_]
        both.append(point)
        at = next_
    return both + points[at:] if come else points
