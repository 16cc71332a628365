"""What decides which entry goes when bytes run out."""

from __future__ import annotations

from typing import Protocol

Key = bytes


class Eviction(Protocol):
    """An order over keys with sizes in bytes. It holds no entries; each step costs the same however many there are.

    Shares of queues are of what is held now, so that a limit may move.
    """

    def __len__(self) -> int:
        """Keys held."""
        ...

    def add(self, key: Key, size_bytes: int, cost: float = 1.0) -> None:
        """A key that is not held. `cost` is what making its value anew would take."""
        ...

    def hit(self, key: Key) -> None:
        """A key that is held was used."""
        ...

    def remove(self, key: Key) -> None:
        """A key that is held is gone for another reason."""
        ...

    def evict(self) -> Key:
        """The one that goes. Something must be held."""
        ...
