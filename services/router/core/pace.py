"""How many sessions may move to a worker a second."""

from __future__ import annotations

from collections.abc import Set


class Pace:
    """A bucket for each worker: `per_s` moves a second, and as many at once as come in one."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        # Moves left, and when that was so.
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, worker: str, now: float) -> bool:
        """One more session may move there."""
        return self._filled(worker, now) >= 1.0

    def moved(self, worker: str, now: float) -> None:
        """One has."""
        self._left[worker] = (self._filled(worker, now) - 1.0, now)

    def keep_only(self, workers: Set[str]) -> None:
        """Forgets all others."""
        self._left = {worker: left for worker, left in self._left.items() if worker in workers}

    def _filled(self, worker: str, now: float) -> float:
        most = max(1.0, self._per_s)
        if worker not in self._left:
            return most
        left, at = self._left[worker]
        return min(most, left + max(0.0, now - at) * self._per_s)
