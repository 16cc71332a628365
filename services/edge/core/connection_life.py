"""How long one client connection lives: what it has carried, how it grows, and why it ends before its client wants it to.

           opened                    an answer ends: requests ≥ 10,000
    open ──────────► open, used ───────────────────────────────────────► drained
                                     a sample: grew ≥ 0.8 MB/s three times in a row
                                     its credentials count no more
                                     the process is under pressure, and nothing runs on it

Drained is: told `going_away` with its cursors, no new work, and a while for what runs. Numbers are settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    """Why a connection is drained; a label of metrics."""

    REQUESTS = "requests"
    GROWTH = "growth"
    CREDENTIALS = "credentials"
    PRESSURE = "pressure"


@dataclass(frozen=True, slots=True)
class LifeRules:
    """`requests` one connection may carry, 0: any number. `growth_bytes_per_s` that it may not reach in `growth_samples`
    samples in a row, 0: it may."""

    requests: int
    growth_bytes_per_s: float
    growth_samples: int


class Life:
    """What is known of one connection. Times are monotonic seconds."""

    __slots__ = ("_bytes", "_grew", "_rules", "requests", "used_at")

    def __init__(self, rules: LifeRules, now: float) -> None:
        self._rules = rules
        self._bytes = 0
        self._grew = 0
        self.requests = 0
        self.used_at = now

    @property
    def worn_out(self) -> bool:
        """It has carried as many requests as it may."""
        return 0 < self._rules.requests <= self.requests

    def used(self, now: float, *, new: bool) -> None:
        """Something is read on it. Only what is `new` counts as a request: a connection that was given a thousand answers of an
        earlier one back must not be worn out by that."""
        self.requests += new
        self.used_at = now

    def grows(self, held_bytes: int, elapsed_s: float) -> bool:
        """Takes a sample of what is held for it; `elapsed_s` since the last one. True when it has grown too fast for too long."""
        grown, self._bytes = held_bytes - self._bytes, held_bytes
        rate = self._rules.growth_bytes_per_s
        self._grew = self._grew + 1 if rate and elapsed_s > 0 and grown >= rate * elapsed_s else 0
        return self._grew >= self._rules.growth_samples


def beats_until_dead(missed: int, period_s: float, silent_s: float) -> int:
    """Heartbeats in a row without a byte of the client after which it counts as dead: as many as may be missed, and no more
    than fit into `silent_s`."""
    return max(1, min(missed, int(silent_s / period_s)))
