"""How counts are told."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

# Two-sided 95 %.
_Z = 1.96
_TELL_EVERY_S = 10.0


def interval(count: float, total: float) -> tuple[float, float]:
    """Wilson's, in percent (E. B. Wilson, JASA 22, 1927)."""
    if not total:
        return 0.0, 100.0
    share = count / total
    middle = share + _Z**2 / (2 * total)
    spread = _Z * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    low, high = (middle - spread) / (1 + _Z**2 / total), (middle + spread) / (1 + _Z**2 / total)
    return max(0.0, 100 * low), 100 * high


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many, in `orders` orders of the same: their answers are much alike, so the interval is that of one."""

    count: int
    total: int
    orders: int = 1

    @property
    def percent(self) -> float:
        """The share."""
        return 100 * self.count / self.total if self.total else 0.0

    def __str__(self) -> str:
        low, high = interval(self.count / self.orders, self.total / self.orders)
        return f"{self.percent:.1f} ({low:.1f}–{high:.1f})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table in Markdown."""
    print("| " + " | ".join(head) + " |\n|---" + "|---" * (len(head) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


class Progress:
    """Tells on stderr how far something is, and about how long the rest will take; not more often than every ten seconds."""

    def __init__(self, name: str, unit: str, total: int) -> None:
        self._name, self._unit, self._total = name, unit, total
        self._begun = self._told = time.monotonic()
        self._done = 0

    def done(self, more: int) -> None:
        """So much more of it."""
        self._done += more
        now = time.monotonic()
        if now - self._told < _TELL_EVERY_S and self._done < self._total:
            return
        self._told = now
        spent = now - self._begun
        left = spent / self._done * (self._total - self._done)
        print(
            f"{self._name}: {self._done:,} of {self._total:,} {self._unit} in {spent:.0f} s, some {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
