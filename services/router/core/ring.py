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
        self._points: list[tuple[int, str]] = []
        self.adopt(dict.fromkeys(workers, 1.0))

    def adopt(self, workers: Mapping[str, float]) -> None:
        """Another set of workers, with their weights, which a ring takes no account of: bounds do.

        Only the points of who came or went are touched: with a thousand workers a new circle takes as long as many decisions.
        """
        wanted = frozenset(workers)
        if gone := self.workers - wanted:
            self._points = [point for point in self._points if point[1] not in gone]
        if come := wanted - self.workers:
            self._points += [
                (xxhash.xxh3_64_intdigest(f"{worker}#{number}".encode()), worker)
                for worker in come
                for number in range(self._vnodes)
            ]
            self._points.sort()  # one long sorted run and a short rest
        self.workers = wanted

    def walk(self, key: str) -> Iterator[str]:
        """Every worker once, clockwise from the key's place."""
        points = self._points
        start = bisect_left(points, (xxhash.xxh3_64_intdigest(key.encode()),))
        seen: set[str] = set()
        for step in range(len(points)):
            owner = points[(start + step) % len(points)][1]
            if owner not in seen:
                seen.add(owner)
                yield owner
                if len(seen) == len(self.workers):
                    return
