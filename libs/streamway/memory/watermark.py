"""The decision: above the mark bulk work is not admitted, until there is a little room again."""

from __future__ import annotations

from typing import Final

# Below the mark by this much before it counts as room again, so that one answer more or less does not switch it.
_HYSTERESIS: Final = 0.03


class Watermark:
    """`mark` is a share of the limit, 0 … 1; at 1 nothing is ever too full."""

    def __init__(self, mark: float) -> None:
        self._mark = mark
        self.pressed = False

    def look(self, used_bytes: int, limit_bytes: int) -> bool:
        """Takes a reading; True when `pressed` is another than before. A limit of 0 is none."""
        share = used_bytes / limit_bytes if limit_bytes > 0 else 0.0
        before = self.pressed
        least = self._mark - _HYSTERESIS if before else self._mark
        self.pressed = self._mark < 1 and share >= least
        return self.pressed != before
