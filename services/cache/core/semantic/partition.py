"""One context's vectors, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from services.cache.core.semantic.flat import Block, FlatIndex, scan
from services.cache.core.semantic.slabs import SLAB_ROWS, Slabs
from services.cache.interfaces import Slots, Vector, Vectors

# A search off the loop gives so many times what was asked for: some of it may have gone when it is scored again.
SPARE: Final = 2


class Found(NamedTuple):
    """An entry and its cosine, −1 … 1."""

    entry: str
    similarity: float


@dataclass(frozen=True, slots=True)
class View:
    """What a search in another thread reads, while slots are written."""

    blocks: tuple[Block, ...]

    def nearest(self, vectors: Vectors, most: int) -> list[Slots]:
        """For each of the vectors, slots that were near; `Partition.neighbours` says whose they are now."""
        return scan(self.blocks, vectors, SPARE * most)


class Partition:
    """Changed by one thread only."""

    def __init__(self, slabs: Slabs) -> None:
        self.index: Final = FlatIndex(slabs)
        # By slot; empty for a free one.
        self._owners: list[str] = []
        # Searches in another thread that are not answered yet: what they find must not move.
        self.searches = 0

    def __len__(self) -> int:
        return len(self.index)

    def add(self, entry: str, vector: Vector) -> int:
        """Gives the slot. Raises ValueError for another dimension."""
        slot = self.index.add(vector)
        if slot == len(self._owners):
            self._owners.append(entry)
        else:
            self._owners[slot] = entry
        return slot

    def remove(self, slot: int) -> None:
        """Frees a slot."""
        self.index.remove(slot)
        self._owners[slot] = ""

    def compact(self, most: int = SLAB_ROWS) -> list[tuple[str, int]]:
        """Lets rows go that few vectors need, `most` moves at a time; gives the entries that moved, and where they are."""
        moved = self.index.compact(most)
        for old, new in moved:
            self._owners[new], self._owners[old] = self._owners[old], ""
        if len(self._owners) > 2 * len(self.index):
            while self._owners and not self._owners[-1]:
                self._owners.pop()
        return [(self._owners[new], new) for _, new in moved]

    def view(self) -> View:
        """For a search in another thread. Raises ValueError where it lives in rows that others may get."""
        if self.index.shared:
            raise ValueError("shared rows are searched by their owner")
        return View(self.index.blocks)

    def nearest(self, vector: Vector, most: int) -> list[Found]:
        """At most `most` entries, the nearest first, at once."""
        return [Found(self._owners[slot], near) for slot, near in self.index.nearest(vector, most)]

    def neighbours(self, slots: Slots, vector: Vector, most: int) -> list[Found]:
        """Whose the slots are now, with the cosines of what is in them now: at most `most`, the nearest first."""
        owned = [slot for slot in slots.tolist() if slot < len(self._owners) and self._owners[slot]]
        found = [Found(self._owners[slot], self.index.similarity(slot, vector)) for slot in owned]
        return sorted(found, key=lambda each: -each.similarity)[:most]
