"""A small window for what is new, and a main part that only lets in who was used more often than whom it replaces (Einziger,
Friedman, Manes, ACM ToS 2017).

    add ─► window (1 %) ─► probation ── used ──► protected (80 % of main)
                             ▲ ▲ └── the one of candidate and victim that was used less goes
                             │ └───────── pushed out of ─────┘
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from services.cache.core.eviction.port import Key
from services.cache.core.eviction.sketch import Sketch

_WINDOW_SHARE: Final = 0.01
_PROTECTED_SHARE: Final = 0.8


class TinyLfu:
    """See `Eviction`. The window has one share: it does not look for a better one."""

    def __init__(self) -> None:
        self._window: OrderedDict[Key, int] = OrderedDict()
        self._probation: OrderedDict[Key, int] = OrderedDict()
        self._protected: OrderedDict[Key, int] = OrderedDict()
        self._window_bytes = 0
        self._protected_bytes = 0
        self._bytes = 0
        self._candidate: Key | None = None
        self._sketch = Sketch()

    def __len__(self) -> int:
        return len(self._window) + len(self._probation) + len(self._protected)

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        self._sketch.fit(len(self) + 1)
        self._sketch.count(key)
        self._window[key] = size_bytes
        self._window_bytes += size_bytes
        self._bytes += size_bytes
        while self._window_bytes > _WINDOW_SHARE * self._bytes and len(self._window) > 1:
            self._candidate, moved_bytes = self._window.popitem(last=False)
            self._window_bytes -= moved_bytes
            self._probation[self._candidate] = moved_bytes

    def hit(self, key: Key) -> None:
        self._sketch.count(key)
        if key in self._window:
            self._window.move_to_end(key)
        elif key in self._protected:
            self._protected.move_to_end(key)
        else:
            size_bytes = self._probation.pop(key)
            self._protected[key] = size_bytes
            self._protected_bytes += size_bytes
            while self._protected_bytes > _PROTECTED_SHARE * (self._bytes - self._window_bytes):
                demoted, demoted_bytes = self._protected.popitem(last=False)
                self._protected_bytes -= demoted_bytes
                self._probation[demoted] = demoted_bytes

    def remove(self, key: Key) -> None:
        for part in (self._window, self._protected, self._probation):
            size_bytes = part.pop(key, None)
            if size_bytes is None:
                continue
            self._bytes -= size_bytes
            if part is self._window:
                self._window_bytes -= size_bytes
            elif part is self._protected:
                self._protected_bytes -= size_bytes
            return
        raise KeyError(key)

    def evict(self) -> Key:
        victim = next(iter(self._probation or self._protected or self._window))
        candidate, self._candidate = self._candidate, None
        rivals = candidate is not None and candidate in self._probation and candidate != victim
        if candidate is not None and rivals and self._sketch.estimate(candidate) <= self._sketch.estimate(victim):
            victim = candidate
        self.remove(victim)
        return victim
