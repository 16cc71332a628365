"""The vectors of one partition in rows whose slots are used again.

    up to 1,024 rows    a range of a shared slab, which is changed for one of twice the size when it is full
    more                blocks of its own of 1,024, 1,024, 2,048, 4,096 … rows: growing copies nothing

What is in a shared slab is read by who owns the index only, and at once. Blocks of its own may be read by another thread while
slots are written: what it finds is scored again (`Partition.neighbours`).
"""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

import numpy as np

from services.cache.core.semantic.slabs import SLAB_ROWS, Range, Slabs
from services.cache.interfaces import Slots, Vector, Vectors


class Block(NamedTuple):
    """Rows from slot `first` on; `live` tells which of them have an owner."""

    first: int
    rows: Vectors
    live: np.ndarray[tuple[int], np.dtype[np.bool_]]


class FlatIndex:
    """Every vector is compared: exact, removal costs nothing, and the lowest free slot is taken before the rows grow.

    Vectors are of unit length: a dot product is the cosine.
    """

    def __init__(self, slabs: Slabs) -> None:
        self._slabs = slabs
        self._range: Range | None = None
        self._blocks: tuple[Block, ...] = ()
        # A heap. What is not below `_used`, or has an owner again, is passed over.
        self._free: list[int] = []
        self._used = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def own_bytes(self) -> int:
        """What blocks of its own take; 0 while it lives in a shared slab."""
        return 0 if self._range is not None else sum(block.rows.nbytes for block in self._blocks)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What a search reads: these rows and no others."""
        return self._blocks

    @property
    def sparse(self) -> bool:
        """Three rows in four are free: see `compact`."""
        return 1 < self._rows >= 4 * self._count

    @property
    def shared(self) -> bool:
        """It lives in a shared slab: only its owner may read it, and at once."""
        return self._range is not None

    def add(self, vector: Vector) -> int:
        """Gives the slot, which is its owner's until `remove`. Raises ValueError for another dimension."""
        if vector.shape != (self._slabs.dims,):
            raise ValueError(f"a vector of {vector.shape} among those of {self._slabs.dims}")
        slot = self._lowest_free()
        block = self._block(slot)
        block.rows[slot - block.first] = vector
        block.live[slot - block.first] = True
        self._count += 1
        return slot

    def remove(self, slot: int) -> None:
        """Frees a slot; with the last one all rows."""
        block = self._block(slot)
        block.live[slot - block.first] = False
        self._count -= 1
        if not self._count:
            self._clear()
            return
        heapq.heappush(self._free, slot)
        while not self.holds(self._used - 1):
            self._used -= 1
        while len(self._blocks) > 2 and self._used <= self._blocks[-1].first // 2:
            self._blocks = self._blocks[:-1]

    def compact(self, most: int) -> list[tuple[int, int]]:
        """Moves at most `most` vectors from the highest slots to the lowest free ones; gives from where to where.

        The rows that are free then are let go.
        """
        moved: list[tuple[int, int]] = []
        while len(moved) < most and self._used > self._count:
            old = self._used - 1
            new = self.add(self.vector(old))
            self.remove(old)
            moved.append((old, new))
        if self._used == self._count and self.sparse and self._rows <= 2 * SLAB_ROWS:
            self._move(self._rows // 2)
        return moved

    def holds(self, slot: int) -> bool:
        """The slot has an owner."""
        block = self._block(slot)
        return bool(block.live[slot - block.first])

    def vector(self, slot: int) -> Vector:
        """What was put into a slot, not a copy."""
        block = self._block(slot)
        vector: Vector = block.rows[slot - block.first]
        return vector

    def similarity(self, slot: int, vector: Vector) -> float:
        """The cosine of a vector with what is in a slot."""
        return float(self.vector(slot) @ vector)

    def live(self) -> Slots:
        """All slots that have an owner, ascending."""
        found = [block.first + np.flatnonzero(block.live) for block in self._blocks]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def nearest(self, vector: Vector, most: int) -> list[tuple[int, float]]:
        """At most `most` slots and their cosines, the nearest first."""
        slots = scan(self._blocks, vector[None], most)[0].tolist()
        return [(slot, self.similarity(slot, vector)) for slot in slots]

    def _block(self, slot: int) -> Block:
        # Block 0 begins at 0, block n at 1,024 * 2 ** (n - 1).
        return self._blocks[(slot // SLAB_ROWS).bit_length()]

    def _lowest_free(self) -> int:
        while self._free:
            slot = heapq.heappop(self._free)
            if slot < self._used and not self.holds(slot):
                return slot
        if self._used == self._rows:
            if self._rows <= SLAB_ROWS:
                self._move(max(1, 2 * self._rows))
            else:
                self._blocks = (*self._blocks, self._own(self._rows, self._rows))
        self._used += 1
        return self._used - 1

    @property
    def _rows(self) -> int:
        return self._blocks[-1].first + len(self._blocks[-1].rows) if self._blocks else 0

    def _move(self, rows: int) -> None:
        """Into a place of `rows`, a power of two up to 2 * SLAB_ROWS."""
        taken = self._slabs.take(rows) if rows <= SLAB_ROWS else None
        blocks: tuple[Block, ...]
        if taken is not None:
            blocks = (Block(0, self._slabs.matrix(taken), np.zeros(rows, np.bool_)),)
        else:
            blocks = (self._own(0, SLAB_ROWS), self._own(SLAB_ROWS, SLAB_ROWS))
        if self._blocks:
            blocks[0].rows[: self._used] = self._blocks[0].rows[: self._used]
            blocks[0].live[: self._used] = self._blocks[0].live[: self._used]
        self._give_back()
        self._blocks, self._range = blocks, taken

    def _own(self, first: int, rows: int) -> Block:
        return Block(first, np.empty((rows, self._slabs.dims), np.float32), np.zeros(rows, np.bool_))

    def _clear(self) -> None:
        self._give_back()
        self._blocks, self._free, self._used = (), [], 0

    def _give_back(self) -> None:
        if self._range is not None:
            self._slabs.give(self._range)
            self._range = None


# Cosines of so many rows with one vector are read at a time: a megabyte for 8 vectors.
_ROWS_AT_ONCE: Final = 32768


def scan(blocks: tuple[Block, ...], vectors: Vectors, most: int) -> list[Slots]:
    """For each of `vectors` at most `most` slots, the nearest first; `vectors` is float32[n, d]."""
    slots: list[Slots] = []
    scores: list[Vectors] = []
    for first, rows, live in blocks:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            # A copy first: numpy refuses to count what changes under its hands.
            piece = np.trim_zeros(live[start : start + _ROWS_AT_ONCE].copy(), "b")
            end = start + len(piece)
            # What is behind the last one that lives was perhaps never written.
            if not len(piece):
                continue
            near = vectors @ rows[start:end].T
            near[:, ~piece] = -np.inf
            count = min(most, len(piece))
            best = np.argpartition(near, -count, axis=1)[:, -count:]
            slots.append(best + (first + start))
            scores.append(np.take_along_axis(near, best, axis=1))
    if not slots:
        return [np.zeros(0, np.int64) for _ in vectors]
    return _ordered(np.hstack(slots), np.hstack(scores), most)


def score(blocks: tuple[Block, ...], vector: Vector, slots: Slots, most: int) -> Slots:
    """Of `slots` at most `most`, the nearest to `vector` first, by their whole vectors."""
    if not len(slots):
        return slots
    near = np.full(len(slots), -np.inf, np.float32)
    for first, rows, live in blocks:
        within = (slots >= first) & (slots < first + len(rows))
        if within.any():
            at = slots[within] - first
            near[within] = np.where(live[at], rows[at] @ vector, -np.inf)
    return _ordered(slots[None], near[None], most)[0]


def gather(blocks: tuple[Block, ...], slots: Slots) -> Vectors:
    """The vectors in some slots, a copy: float32[len(slots), d]."""
    vectors = np.empty((len(slots), blocks[0].rows.shape[1]), np.float32)
    for first, rows, _ in blocks:
        within = (slots >= first) & (slots < first + len(rows))
        vectors[within] = rows[slots[within] - first]
    return vectors


def _ordered(slots: Slots, scores: Vectors, most: int) -> list[Slots]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    kept = np.take_along_axis(scores, order, axis=1) > -np.inf
    return [row[keep] for row, keep in zip(np.take_along_axis(slots, order, axis=1), kept, strict=True)]
