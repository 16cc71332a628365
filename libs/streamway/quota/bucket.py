"""A minute's worth of something, filled evenly."""

from __future__ import annotations

from dataclasses import dataclass

from streamway.quota.limits import MINUTE_MS


@dataclass(slots=True)
class Bucket:
    """Full where it does not exist yet. `level` is what is left at `at_ms`, by the caller's clock."""

    level: float
    at_ms: float

    def refill(self, limit: int, now_ms: float) -> float:
        """A clock that goes back fills nothing for that time, and goes on from there; one that leaps fills it at most."""
        passed = max(0.0, now_ms - self.at_ms)
        self.level = min(float(limit), self.level + passed * limit / MINUTE_MS)
        self.at_ms = now_ms
        return self.level
