"""One queue and a hand (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024).

head ─ new ─ … ─ ● used ─ ○ unused ─ … ─ tail        the hand moves to the head, clears ●, and takes the first ○
"""

from __future__ import annotations

from services.cache.core.eviction.port import Key


class _Node:
    __slots__ = ("key", "newer", "older", "used")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.used = False
        self.newer: _Node | None = None
        self.older: _Node | None = None


class Sieve:
    """See `Eviction`. What survives stays in its place."""

    def __init__(self) -> None:
        self._nodes: dict[Key, _Node] = {}
        self._head: _Node | None = None
        self._tail: _Node | None = None
        self._hand: _Node | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        node = self._nodes[key] = _Node(key)
        node.older = self._head
        if self._head is not None:
            self._head.newer = node
        self._head = node
        self._tail = self._tail or node

    def hit(self, key: Key) -> None:
        self._nodes[key].used = True

    def remove(self, key: Key) -> None:
        node = self._nodes.pop(key)
        if self._hand is node:
            self._hand = node.newer
        if node.newer is not None:
            node.newer.older = node.older
        else:
            self._head = node.older
        if node.older is not None:
            node.older.newer = node.newer
        else:
            self._tail = node.newer

    def evict(self) -> Key:
        node = self._hand or self._tail
        while node is not None and node.used:
            node.used = False
            node = node.newer or self._tail
        if node is None:
            raise IndexError("nothing is held")
        self._hand = node
        self.remove(node.key)
        return node.key
