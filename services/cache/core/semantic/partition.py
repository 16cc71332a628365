"""One context's vectors, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from services.cache.core.semantic.flat import Block, FlatIndex, gather, scan, score
from services.cache.core.semantic.kinds import Kind
from services.cache.core.semantic.slabs import SLAB_ROWS, Slabs
from services.cache.interfaces import ApproximateIndex, Slots, Vector, Vectors

# A search off the loop gives so many times what was asked for: some of it may have gone when it is scored again.
SPARE: Final = 2
# A shortcut that does not know a greater share of the vectors is built anew: that is faster than adding them one by one.
FRESH_MOST: Final = 0.25


class Found(NamedTuple):
    """An entry and its cosine, −1 … 1."""

    entry: str
    similarity: float


@dataclass(frozen=True, slots=True)
class View:
    """What a search in another thread reads, while slots are written. `fresh`: slots that `shortcut` does not know yet."""

    blocks: tuple[Block, ...]
    shortcut: ApproximateIndex | None
    fresh: Slots

    def nearest(self, vectors: Vectors, most: int) -> list[Slots]:
        """For each of the vectors, slots that were near; `Partition.neighbours` says whose they are now."""
        if self.shortcut is None:
            return scan(self.blocks, vectors, SPARE * most)
        found = self.shortcut.nearest(vectors, SPARE * most)
        slots = [np.unique(np.concatenate((each, self.fresh))) for each in found]
        return [score(self.blocks, vector, each, SPARE * most) for vector, each in zip(vectors, slots, strict=True)]

    def rows(self, slots: Slots) -> Vectors:
        """Whole vectors, as they are now."""
        return gather(self.blocks, slots)


class Partition:
    """Changed by one thread only.

    `shortcut` finds candidates without reading all rows. It is built and filled by other threads from rows that change
    meanwhile: a watch collects which ones did, and what was read of those does not count.
    """

    def __init__(self, slabs: Slabs) -> None:
        self.index: Final = FlatIndex(slabs)
        # By slot; empty for a free one.
        self._owners: list[str] = []
        # Searches in another thread that are not answered yet: what they find must not move.
        self.searches = 0
        self.shortcut: ApproximateIndex | None = None
        # In the order in which they came; as small as can be while there is no shortcut, since there are many partitions.
        self._fresh: dict[int, None] = {}
        self._watches: tuple[set[int], ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    def add(self, entry: str, vector: Vector) -> int:
        """Gives the slot. Raises ValueError for another dimension."""
        slot = self.index.add(vector)
        if slot == len(self._owners):
            self._owners.append(entry)
        else:
            self._owners[slot] = entry
        self._changed(slot)
        if self.shortcut is not None:
            self._fresh[slot] = None
        return slot

    def remove(self, slot: int) -> None:
        """Frees a slot."""
        self.index.remove(slot)
        self._owners[slot] = ""
        self._forgotten(slot)

    def compact(self, most: int = SLAB_ROWS) -> list[tuple[str, int]]:
        """Lets rows go that few vectors need, `most` moves at a time; gives the entries that moved, and where they are."""
        moved = self.index.compact(most)
        for old, new in moved:
            self._owners[new], self._owners[old] = self._owners[old], ""
            self._forgotten(old)
            self._changed(new)
            if self.shortcut is not None:
                self._fresh[new] = None
        if len(self._owners) > 2 * len(self.index):
            while self._owners and not self._owners[-1]:
                self._owners.pop()
        return [(self._owners[new], new) for _, new in moved]

    def view(self) -> View:
        """For a search in another thread. Raises ValueError where it lives in rows that others may get."""
        if self.index.shared:
            raise ValueError("shared rows are searched by their owner")
        return View(self.index.blocks, self.shortcut, np.fromiter(self._fresh, np.int64, len(self._fresh)))

    def nearest(self, vector: Vector, most: int) -> list[Found]:
        """At most `most` entries, the nearest first, at once."""
        return [Found(self._owners[slot], near) for slot, near in self.index.nearest(vector, most)]

    def neighbours(self, slots: Slots, vector: Vector, most: int) -> list[Found]:
        """Whose the slots are now, with the cosines of what is in them now: at most `most`, the nearest first."""
        owned = [slot for slot in slots.tolist() if self._owned(slot)]
        found = [Found(self._owners[slot], self.index.similarity(slot, vector)) for slot in owned]
        return sorted(found, key=lambda each: -each.similarity)[:most]

    @property
    def kind(self) -> Kind:
        """How it is searched."""
        return self.shortcut.kind if self.shortcut is not None else Kind.FLAT

    @property
    def worn(self) -> bool:
        """Its shortcut should be built anew."""
        return self.shortcut is not None and (self.shortcut.worn or len(self._fresh) > FRESH_MOST * len(self))

    def watch(self) -> set[int]:
        """Collects the slots that change from now on, until `install` or `added` gets it."""
        watch = set[int]()
        self._watches = (*self._watches, watch)
        return watch

    def unwatch(self, watch: set[int]) -> None:
        """Ends a watch that came to nothing."""
        self._watches = tuple(each for each in self._watches if each is not watch)

    def install(self, shortcut: ApproximateIndex | None, watch: set[int]) -> None:
        """From now on searches go through this one, which was built from the rows as they were since the watch began."""
        self.unwatch(watch)
        self.shortcut = shortcut
        changed = sorted(watch) if shortcut is not None else []
        self._fresh = {slot: None for slot in changed if self._owned(slot)}
        for slot in changed:
            self._drop(slot)

    def fresh(self, most: int) -> Slots:
        """The first slots that the shortcut does not know yet."""
        return np.fromiter(islice(self._fresh, most), np.int64)

    def added(self, slots: Slots, shortcut: ApproximateIndex, watch: set[int]) -> None:
        """The shortcut has got these, as they were since the watch began."""
        self.unwatch(watch)
        if shortcut is not self.shortcut:
            return
        for slot in slots.tolist():
            if slot in watch:
                self._drop(slot)
            else:
                self._fresh.pop(slot, None)

    def entries(self, slots: Slots) -> list[str]:
        """Whose some slots are; empty for those of nobody. Any thread may ask: what changed meanwhile is in a watch."""
        owners = self._owners
        return [owners[slot] if 0 <= slot < len(owners) else "" for slot in slots.tolist()]

    def _owned(self, slot: int) -> bool:
        return slot < len(self._owners) and bool(self._owners[slot])

    def _changed(self, slot: int) -> None:
        for watch in self._watches:
            watch.add(slot)

    def _forgotten(self, slot: int) -> None:
        self._changed(slot)
        self._fresh.pop(slot, None)
        self._drop(slot)

    def _drop(self, slot: int) -> None:
        if self.shortcut is not None:
            self.shortcut.remove(slot)
