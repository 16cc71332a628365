"""When a crashed process is started again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_S: Final = 5.0
FIRST_S: Final = 0.25
# A process that lived this long had recovered: its next crash counts as the first.
HEALTHY_AFTER_S: Final = 30.0


@dataclass(slots=True)
class Backoff:
    """Delay before each restart: 0 after the first crash, then 0.25 s doubling to 5 s."""

    crashes: int = 0

    def after_crash(self, lived_s: float) -> float:
        """Seconds to wait before the next start. `lived_s` is how long the process ran."""
        if lived_s >= HEALTHY_AFTER_S:
            self.crashes = 0
        self.crashes += 1
        if self.crashes == 1:
            return 0.0
        return float(min(MOST_S, FIRST_S * 2 ** min(self.crashes - 2, 10)))
