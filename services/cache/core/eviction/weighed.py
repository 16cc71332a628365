"""Any order, with regard to what an entry saves: one that is dear for its bytes goes around again before it goes."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from services.cache.core.eviction.port import Eviction, Key

_MOST_TURNS: Final = 3
# Entries looked at for one that goes: the last of them does, whatever it saves.
_MOST_SPARED: Final = 8


class _Held(NamedTuple):
    size_bytes: int
    cost: float


class Weighed:
    """See `Eviction`. Turns are the binary logarithm of cost per byte over the mean of what is held, at most three; a use gives
    them back.
    """

    def __init__(self, order: Eviction) -> None:
        self._order = order
        self._held: dict[Key, _Held] = {}
        self._turns: dict[Key, int] = {}
        self._bytes = 0
        self._cost = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        self._held[key] = held = _Held(size_bytes, cost)
        self._bytes += size_bytes
        self._cost += cost
        self._order.add(key, size_bytes)
        self._give(key, held)

    def hit(self, key: Key) -> None:
        self._order.hit(key)
        self._give(key, self._held[key])

    def remove(self, key: Key) -> None:
        self._order.remove(key)
        self._forget(key)

    def evict(self) -> Key:
        key = self._order.evict()
        for _ in range(_MOST_SPARED):
            turns = self._turns.get(key, 0)
            if not turns:
                break
            self._turns[key] = turns - 1
            self._order.add(key, self._held[key].size_bytes)
            key = self._order.evict()
        self._forget(key)
        return key

    def _give(self, key: Key, held: _Held) -> None:
        ratio = held.cost * self._bytes / (held.size_bytes * self._cost)
        turns = min(_MOST_TURNS, math.floor(math.log2(ratio))) if ratio >= 2 else 0
        if turns:
            self._turns[key] = turns
        else:
            self._turns.pop(key, None)

    def _forget(self, key: Key) -> None:
        held = self._held.pop(key)
        self._turns.pop(key, None)
        self._bytes -= held.size_bytes
        self._cost -= held.cost
