"""How many tasks a worker takes beyond its slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HIGHEST: Final = 65_535
# Rounds in a row in which half of the depth would have done, until it shrinks by one.
_PATIENCE: Final = 10


@dataclass(slots=True)
class PreloadDepth:
    """Deeper when a slot stood idle while the lanes had work, since taking a task costs a round trip; shallower again, one by
    one, when half of it would have done: what is taken no other worker can get.

    `least` is where it starts and never goes below, `most` its bound; equal: it does not move.
    """

    least: int
    most: int = HIGHEST
    _depth: int = -1
    _starved: bool = False
    _lowest_waiting: int | None = None
    _calm_rounds: int = 0

    def __post_init__(self) -> None:
        self._depth = self.least

    @property
    def value(self) -> int:
        """The depth now."""
        return self._depth

    def starved(self) -> None:
        """The window ran dry while a lane held more than there was room for."""
        self._starved = True

    def waited(self, waiting: int) -> None:
        """So many tasks wait after one has started."""
        self._lowest_waiting = waiting if self._lowest_waiting is None else min(self._lowest_waiting, waiting)

    def settle(self) -> int:
        """Ends a round, a second or so; returns the depth of the next."""
        lowest, starved = self._lowest_waiting, self._starved
        self._lowest_waiting, self._starved = None, False
        if starved:
            self._calm_rounds = 0
            self._depth = min(self.most, max(1, self._depth * 2))
        elif lowest is not None and 2 * lowest >= self._depth:
            self._calm_rounds += 1
            if self._calm_rounds >= _PATIENCE:
                self._calm_rounds = 0
                self._depth = max(self.least, self._depth - 1)
        return self._depth
