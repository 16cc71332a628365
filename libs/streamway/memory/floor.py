"""The decision: so little memory is left that answers which run are cut."""

from __future__ import annotations

from collections.abc import Iterable

from streamway.memory.reading import Memory


class Floor:
    """`least_bytes` of memory must be available, at every level that limits it, but no more than `share` (0 … 1) of that level's
    limit: a small machine must not cut everything because it is small. `least_bytes` 0: never too little.
    """

    def __init__(self, least_bytes: int, share: float = 1.0) -> None:
        self.least_bytes = least_bytes
        self._share = share

    def of(self, memory: Memory) -> int:
        """How many bytes must be available at a level; 0 where its limit is not known."""
        return min(self.least_bytes, int(self._share * memory.limit))

    def short(self, levels: Iterable[Memory]) -> bool:
        """Whether any of them has less."""
        return any(memory.available < self.of(memory) for memory in levels)
