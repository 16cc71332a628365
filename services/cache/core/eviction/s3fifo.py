"""Three queues, no order by use (Yang, Zhang, Qiu, Yue, Vinayak, SOSP 2023).

add ─► small (10 %) ── used more than once ──► main (90 %) ── unused ──► gone
          └── else ──► gone, key into ghost        └─ used: once more around
add of a key in ghost ───────────────────────► main
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from services.cache.core.eviction.port import Key

_SMALL_SHARE: Final = 0.1
_MOST_USES: Final = 3


class S3Fifo:
    """See `Eviction`. The ghost has as many keys as main."""

    def __init__(self) -> None:
        self._small: OrderedDict[Key, int] = OrderedDict()
        self._main: OrderedDict[Key, int] = OrderedDict()
        self._ghost: OrderedDict[Key, None] = OrderedDict()
        self._uses: dict[Key, int] = {}
        self._small_bytes = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._uses)

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        self._uses[key] = 0
        self._bytes += size_bytes
        if key in self._ghost:
            del self._ghost[key]
            self._main[key] = size_bytes
        else:
            self._small[key] = size_bytes
            self._small_bytes += size_bytes

    def hit(self, key: Key) -> None:
        self._uses[key] = min(_MOST_USES, self._uses[key] + 1)

    def remove(self, key: Key) -> None:
        del self._uses[key]
        size_bytes = self._small.pop(key, None)
        if size_bytes is not None:
            self._small_bytes -= size_bytes
        else:
            size_bytes = self._main.pop(key)
        self._bytes -= size_bytes

    def evict(self) -> Key:
        while True:
            if self._small and (self._small_bytes >= _SMALL_SHARE * self._bytes or not self._main):
                key, size_bytes = self._small.popitem(last=False)
                self._small_bytes -= size_bytes
                if self._uses[key] > 1:
                    self._main[key] = size_bytes
                    self._uses[key] = 0
                    continue
                self._ghost[key] = None
                while len(self._ghost) > max(1, len(self._main)):
                    self._ghost.popitem(last=False)
            else:
                key, size_bytes = self._main.popitem(last=False)
                if self._uses[key]:
                    self._main[key] = size_bytes
                    self._uses[key] -= 1
                    continue
            del self._uses[key]
            self._bytes -= size_bytes
            return key
