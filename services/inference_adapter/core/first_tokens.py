"""How long clients of each model have waited for their first token of late."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

_MOST: Final = 256
# A lane may hold a task for any name; what there is no room for is not told.
_MOST_MODELS: Final = 1_000
# What is older says nothing of now: a model that is left alone counts as quick again.
_WINDOW_S: Final = 60.0


class FirstTokens:
    """The last waits of each model, at most 256 and a minute old. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._waits: dict[str, deque[tuple[float, float]]] = {}

    def note(self, model: str, waited_s: float, now: float) -> None:
        """A first token has come; `waited_s` from acceptance on."""
        if model not in self._waits and len(self._waits) >= _MOST_MODELS:
            return
        self._waits.setdefault(model, deque(maxlen=_MOST)).append((now, waited_s * 1000))

    def p99_ms(self, model: str, now: float) -> float:
        """The P99 by nearest rank; 0: none lately."""
        waits = self._waits.get(model)
        while waits and now - waits[0][0] > _WINDOW_S:
            waits.popleft()
        if not waits:
            return 0.0
        ordered = sorted(wait for _, wait in waits)
        return ordered[math.ceil(len(ordered) * 0.99) - 1]
