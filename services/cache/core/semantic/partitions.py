"""Which vectors belong together, and whose they are.

    partition (context key) ─→ Partition: slot ─→ entry id
    entry id                ─→ (partition, slot, question)

Each partition has rows of its own: a search never touches another's vectors. Small ones share slabs, by ranges of rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from services.cache.core.semantic.kinds import Kind
from services.cache.core.semantic.partition import Found, Partition
from services.cache.core.semantic.slabs import Slabs
from services.cache.interfaces import Vector

# What Python needs for an indexed entry beside its vector and its question. Measured with tracemalloc.
OVERHEAD_BYTES: Final = 400


def cost_bytes(question: str, dims: int) -> int:
    """What an entry takes in here."""
    return 4 * dims + len(question.encode()) + OVERHEAD_BYTES


class Neighbour(NamedTuple):
    """An entry near a question. `similarity` is the cosine, −1 … 1."""

    entry: str
    question: str
    similarity: float


class _Place(NamedTuple):
    partition: bytes
    slot: int
    question: str


class Partitions:
    """The vectors of all entries that may be found by likeness. All are of one encoder: the first one gives the dimension."""

    def __init__(self) -> None:
        self._slabs: Slabs | None = None
        self._partitions: dict[bytes, Partition] = {}
        self._places: dict[str, _Place] = {}
        self._large: dict[bytes, Partition] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def dims(self) -> int:
        """Numbers of a vector; 0 before the first."""
        return self._slabs.dims if self._slabs is not None else 0

    @property
    def contexts(self) -> int:
        """Number of contexts with at least one entry."""
        return len(self._partitions)

    @property
    def size_bytes(self) -> int:
        """What the rows of all vectors take, used or free."""
        shared_bytes = self._slabs.size_bytes if self._slabs is not None else 0
        return shared_bytes + sum(each.index.own_bytes for each in self._large.values())

    @property
    def index_bytes(self) -> dict[Kind, int]:
        """What the indexes of each kind take beside the vectors."""
        taken = dict.fromkeys((Kind.HNSW, Kind.IVF_PQ), 0)
        for each in self._large.values():
            if each.shortcut is not None:
                taken[each.kind] += each.shortcut.size_bytes
        return taken

    @property
    def large(self) -> dict[bytes, Partition]:
        """The contexts that have rows of their own."""
        return self._large

    def add(self, partition: bytes, entry: str, question: str, vector: Vector) -> None:
        """Puts an entry where it is found. Raises ValueError for another dimension."""
        if self._slabs is None:
            self._slabs = Slabs(len(vector))
        within = self._partitions.get(partition) or Partition(self._slabs)
        slot = within.add(entry, vector)
        self._partitions[partition] = within
        if not within.index.shared:
            self._large[partition] = within
        self._places[entry] = _Place(partition, slot, question)

    def remove(self, entry: str) -> None:
        """Forgets an entry; nothing for one that is not here."""
        place = self._places.pop(entry, None)
        if place is None:
            return
        within = self._partitions[place.partition]
        within.remove(place.slot)
        if not len(within):
            del self._partitions[place.partition]
            self._large.pop(place.partition, None)
        elif within.index.shared and within.index.sparse:
            self.compact(place.partition)

    def compact(self, partition: bytes) -> None:
        """Lets some of the rows go that a partition does not need any more. No other thread may be searching it."""
        within = self._partitions[partition]
        for entry, slot in within.compact():
            self._places[entry] = self._places[entry]._replace(slot=slot)
        if within.index.shared:
            self._large.pop(partition, None)

    def question(self, entry: str) -> str | None:
        """What an entry answers; None for one that is not here."""
        place = self._places.get(entry)
        return place.question if place is not None else None

    def slot(self, partition: bytes, entry: str) -> int:
        """Where an entry is in a context; −1 where it is not. Any thread may ask: what changed meanwhile is in a watch."""
        place = self._places.get(entry)
        return place.slot if place is not None and place.partition == partition else -1

    def partition(self, partition: bytes) -> Partition | None:
        """A context's; None for one without entries."""
        return self._partitions.get(partition)

    def nearest(self, partition: bytes, vector: Vector, most: int) -> list[Neighbour]:
        """At most `most` entries of a partition, the nearest first, by comparing all, at once."""
        within = self._partitions.get(partition)
        return self.named(within.nearest(vector, most)) if within is not None else []

    def named(self, found: list[Found]) -> list[Neighbour]:
        """With their questions."""
        return [Neighbour(entry, self._places[entry].question, near) for entry, near in found]
