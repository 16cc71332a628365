"""A bounded dictionary."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the `most` values that were put or read last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value, now the one read last."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Keeps a value, in place of the longest unused one where it is full."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        return value

    def items(self) -> list[tuple[K, V]]:
        """All, the longest unused first. No use of any."""
        return list(self._values.items())

    def pop(self, key: K) -> V | None:
        """Takes a value out."""
        return self._values.pop(key, None)
