"""What two looks at the mesh say of its speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# A rate is that of so many seconds, as far as there have been looks.
_WINDOW_S: Final = 5.0


class Rates:
    """Rates of counters that only grow, each from the oldest look that is at most five seconds back."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, dict[str, int]]] = []

    def look(self, now: float, counters: Mapping[str, int]) -> dict[str, float | None]:
        """Per second, by name; None for what has not been seen twice, or has begun anew. `now` in seconds, growing."""
        self._looks = [look for look in self._looks if now - look[0] <= _WINDOW_S]
        rates = {name: self._rate(now, name, value) for name, value in counters.items()}
        self._looks.append((now, dict(counters)))
        return rates

    def _rate(self, now: float, name: str, value: int) -> float | None:
        for at, counters in self._looks:
            if name in counters and at < now:
                # A smaller count is that of a process that has begun anew in between.
                return (value - counters[name]) / (now - at) if value >= counters[name] else None
        return None
