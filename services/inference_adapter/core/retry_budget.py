"""How many engine calls may be made again: a share of the calls of late, and a few in any case.

window      1                    2                          of late, at the arrow:
            ├────────────────────┼──────────↑─────────┤     what window 2 has, and half of what window 1 had
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

WINDOW_S: Final = 10.0


class Counts(NamedTuple):
    """Of one window: engine calls that were a task's first, and those that were made again."""

    calls: int
    retries: int


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """`most`: how often one task may be made again. `share` (0 … 1) of the calls of the last ten seconds, of all workers of a
    model, may be; `floor` in any case, or a small mesh could make none again.
    """

    most: int = 2
    share: float = 0.1
    floor: int = 3

    def allows(self, before: Counts, now: Counts, passed: float) -> bool:
        """Whether one more may be made, which `now` counts already. `passed` (0 … 1) of the present window is over."""
        calls = now.calls + before.calls * (1 - passed)
        retries = now.retries + before.retries * (1 - passed)
        return retries <= max(self.floor, self.share * calls)


def window_of(unix_s: float) -> tuple[int, float]:
    """Number of the present window, and how much of it is over, 0 … 1."""
    number = int(unix_s // WINDOW_S)
    return number, unix_s / WINDOW_S - number
