"""The error rate above which a breaker opens: it moves with what is usual for a tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from streamway.tenancy import TierName


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """Where a tier's threshold starts (a part of its calls), over how many seconds it is judged, how slowly it moves (0 … 1)."""

    start: float
    window_s: float
    alpha: float


# docs/design.md §7.
DEFAULT_RULES: Final[Mapping[TierName, BreakerRule]] = MappingProxyType(
    {
        TierName.GOLD: BreakerRule(0.05, 60.0, 0.92),
        TierName.SILVER: BreakerRule(0.12, 120.0, 0.88),
        TierName.BRONZE: BreakerRule(0.25, 300.0, 0.85),
    }
)


class Threshold:
    """t ← α t + (1 − α) × clamp(2 × mean error rate, t0 / 2, 2 t0), once a window, from all workers' calls of a model.

    So it stays between t0 / 2 and 2 t0. A window with fewer than `least_calls` moves nothing.
    """

    def __init__(self, rule: BreakerRule, least_calls: int, now: float) -> None:
        self._rule = rule
        self._least_calls = least_calls
        self._since = now
        self._calls = 0
        self._failures = 0
        self.value = rule.start

    def note(self, now: float, *, failed: bool) -> None:
        """A call has ended, at any worker."""
        rule = self._rule
        if now - self._since >= rule.window_s:
            if self._calls >= self._least_calls:
                aim = min(2 * rule.start, max(rule.start / 2, 2 * self._failures / self._calls))
                self.value = rule.alpha * self.value + (1 - rule.alpha) * aim
            self._since, self._calls, self._failures = now, 0, 0
        self._calls += 1
        self._failures += failed
