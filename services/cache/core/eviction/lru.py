"""The least recently used goes."""

from __future__ import annotations

from collections import OrderedDict

from services.cache.core.eviction.port import Key


class Lru:
    """See `Eviction`. One scan of everything pushes everything out."""

    def __init__(self) -> None:
        self._keys: OrderedDict[Key, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        self._keys[key] = None

    def hit(self, key: Key) -> None:
        self._keys.move_to_end(key)

    def remove(self, key: Key) -> None:
        del self._keys[key]

    def evict(self) -> Key:
        return self._keys.popitem(last=False)[0]
