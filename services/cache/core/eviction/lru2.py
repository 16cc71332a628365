"""LRU-2 as an order of eviction. An entry's uses are those of different requests: none of them are taken for one."""

from __future__ import annotations

from typing import Final

from services.cache.core.eviction.port import Key
from streamway.runtime.lru_k import LruK

# Uses, not seconds: of those that went, as many are remembered as `LruK` bounds by itself.
_FOR_EVER: Final = float("inf")


class Lru2:
    """See `Eviction`. Its clock counts uses."""

    def __init__(self) -> None:
        self._now = 0
        self._uses: LruK[Key] = LruK(correlated_s=0, retained_s=_FOR_EVER)

    def __len__(self) -> int:
        return len(self._uses)

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        self.hit(key)

    def hit(self, key: Key) -> None:
        self._now += 1
        self._uses.used(key, self._now)

    def remove(self, key: Key) -> None:
        self._uses.forget(key)

    def evict(self) -> Key:
        key = self._uses.victim(_nobody_is_spared)
        if key is None:
            raise KeyError("nothing is held")
        self._uses.give_up(key, self._now)
        return key


def _nobody_is_spared(_: Key) -> bool:
    return False
