"""Which workers are gone for good, so that others may have their work.

A worker is gone when its lease has ended while the store answered, or when an edge saw its stream break and it does not answer
this router either. After an outage of the store, and at this router's start, nobody could renew anything as far as can be
known: a full lease must pass first. A worker that was judged by its silence and then renews its lease is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# After an outage of the store, readers that were given more than it has write that first: a takeover starts behind it.
READERS_FIRST_S: Final = 1.0


class Departures:
    """Times are seconds of one monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._steady_since: float | None = None
        # The store answered before, was away, and answers again.
        self._after_outage = False
        self._alive: Mapping[str, bool] = {}
        # Found silent although their lease still ran, with what the lease said then.
        self._silent: dict[str, float] = {}

    def unreadable(self) -> None:
        """The store does not answer."""
        self._after_outage = self._after_outage or self._steady_since is not None
        self._steady_since = None

    def looked(self, alive: Mapping[str, bool], reported_ms: Mapping[str, float], now: float) -> None:
        """Every worker that had a lease lately, whether it has one, and when that was renewed by the worker's own clock."""
        if self._steady_since is None:
            self._steady_since = now
        self._alive = alive
        for worker, said in list(self._silent.items()):
            if worker not in alive or reported_ms.get(worker, said) != said:
                del self._silent[worker]

    def silent(self, worker: str, reported_ms: float) -> None:
        """It did not answer when it was asked."""
        self._silent[worker] = reported_ms

    def is_silent(self, worker: str) -> bool:
        """It did not answer, and has not renewed its lease since."""
        return worker in self._silent

    def steady(self, now: float) -> bool:
        """The store has answered for so long that whoever is alive has renewed its lease."""
        return self._steady_since is not None and now - self._steady_since >= self._lease_s

    def gone(self, now: float) -> list[str]:
        """Workers whose work others may take; empty while the store is away."""
        if self._steady_since is None:
            return []
        steady = self.steady(now)
        heard = not self._after_outage or now - self._steady_since >= READERS_FIRST_S
        return [id_ for id_, alive in self._alive.items() if (heard and id_ in self._silent) or (steady and not alive)]
