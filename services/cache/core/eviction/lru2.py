"""The one whose use before the last is the oldest goes; those used once go first (O'Neil, O'Neil, Weikum 1993, K = 2).

Without a period in which uses count as one: an entry's uses are those of different requests.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Final

from services.cache.core.eviction.port import Key

# The heap is built anew when it has so many more places than keys.
_SLACK: Final = 64


class Lru2:
    """See `Eviction`. Remembers the last use of as many evicted keys as are held, so that one that comes back has two."""

    def __init__(self) -> None:
        self._now = 0
        self._once: OrderedDict[Key, int] = OrderedDict()
        self._twice: dict[Key, tuple[int, int]] = {}  # the use before the last, the last
        self._heap: list[tuple[int, Key]] = []
        self._gone: OrderedDict[Key, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._once) + len(self._twice)

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        self._now += 1
        before = self._gone.pop(key, None)
        if before is None:
            self._once[key] = self._now
        else:
            self._used_twice(key, before)

    def hit(self, key: Key) -> None:
        self._now += 1
        before = self._once.pop(key, None)
        self._used_twice(key, before if before is not None else self._twice[key][1])

    def remove(self, key: Key) -> None:
        if self._once.pop(key, None) is None:
            del self._twice[key]

    def evict(self) -> Key:
        if self._once:
            key, last = self._once.popitem(last=False)
        else:
            key, last = self._oldest()
        self._gone[key] = last
        while len(self._gone) > max(1, len(self)):
            self._gone.popitem(last=False)
        return key

    def _oldest(self) -> tuple[Key, int]:
        while True:
            before, key = heapq.heappop(self._heap)
            found = self._twice.get(key)
            if found is not None and found[0] == before:
                del self._twice[key]
                return key, found[1]

    def _used_twice(self, key: Key, before: int) -> None:
        self._twice[key] = (before, self._now)
        heapq.heappush(self._heap, (before, key))
        if len(self._heap) > 2 * len(self._twice) + _SLACK:
            self._heap = [(uses[0], each) for each, uses in self._twice.items()]
            heapq.heapify(self._heap)
