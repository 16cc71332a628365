"""Which vectors belong together, and whose they are.

    partition (context key) ─→ FlatIndex: slot ─→ entry id
    entry id                ─→ (partition, slot, question)

Each partition has an index of its own: a search never touches another's vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from services.cache.core.semantic.flat import FlatIndex, Vector

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


@dataclass(slots=True)
class _Partition:
    index: FlatIndex
    owners: dict[int, str] = field(default_factory=dict)


class Partitions:
    """The vectors of all entries that may be found by likeness."""

    def __init__(self) -> None:
        self._partitions: dict[bytes, _Partition] = {}
        self._places: dict[str, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def partitions(self) -> int:
        """Number of contexts with at least one entry."""
        return len(self._partitions)

    def add(self, partition: bytes, entry: str, question: str, vector: Vector) -> None:
        """Puts an entry where it is found. Raises ValueError for another dimension."""
        within = self._partitions.get(partition)
        if within is None:
            within = _Partition(FlatIndex(len(vector)))
        slot = within.index.add(vector)
        self._partitions[partition] = within
        within.owners[slot] = entry
        self._places[entry] = _Place(partition, slot, question)

    def remove(self, entry: str) -> None:
        """Forgets an entry; nothing for one that is not here."""
        place = self._places.pop(entry, None)
        if place is None:
            return
        within = self._partitions[place.partition]
        within.index.remove(place.slot)
        del within.owners[place.slot]
        if not within.owners:
            del self._partitions[place.partition]

    def question(self, entry: str) -> str | None:
        """What an entry answers; None for one that is not here."""
        place = self._places.get(entry)
        return place.question if place is not None else None

    def nearest(self, partition: bytes, vector: Vector, most: int) -> list[Neighbour]:
        """At most `most` entries of a partition, the nearest first."""
        within = self._partitions.get(partition)
        if within is None:
            return []
        found = [(within.owners[slot], near) for slot, near in within.index.search(vector, most)]
        return [Neighbour(entry, self._places[entry].question, near) for entry, near in found]
