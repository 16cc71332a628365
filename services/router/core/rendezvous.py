"""Where a session's home is by the highest hash of session and worker (Thaler, Ravishankar 1998), with weights.

No points to keep, and exactly the share of its weight falls to each worker; but every choice looks at every worker. A worker's
score is −weight / ln(u), u its hash with the key in 0 … 1: then the chance to have the highest is proportional to the weight
(Schindelhauer, Schomaker 2005).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import xxhash


class Rendezvous:
    """Preferences by hash. Every router with the same workers has the same ones."""

    def __init__(self) -> None:
        self._weights: dict[str, float] = {}

    def adopt(self, workers: Mapping[str, float]) -> None:
        """Another set of workers, with their weights."""
        self._weights = dict(workers)

    def walk(self, key: str) -> Iterator[str]:
        """Every worker once, the highest score first."""
        scores = {worker: _score(key, worker, weight) for worker, weight in self._weights.items()}
        if not scores:
            return
        # Most walks end at the first: only the others pay for the order.
        first = max(scores, key=scores.__getitem__)
        yield first
        del scores[first]
        yield from sorted(scores, key=scores.__getitem__, reverse=True)


def _score(key: str, worker: str, weight: float) -> float:
    # Half a step up: never 0 or 1, where the logarithm is no number or nothing.
    drawn = (xxhash.xxh3_64_intdigest(f"{key}#{worker}".encode()) + 0.5) / 2.0**64
    return -weight / math.log(drawn) if drawn < 1 else math.inf
