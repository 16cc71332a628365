"""How many there are of each kind."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

_K = TypeVar("_K")


class Tally(Counter[_K]):
    """Counts by kind; what is at zero takes no room."""

    def less(self, kind: _K) -> None:
        """One less."""
        self[kind] -= 1
        if self[kind] <= 0:
            del self[kind]
