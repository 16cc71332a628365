"""Vectors in one matrix whose slots are used again."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

_FIRST_SLOTS: Final = 8


class FlatIndex:
    """Every vector is compared: exact, removal costs nothing, and a slot that is free is taken before the matrix grows.

    Vectors are of unit length: a dot product is the cosine.
    """

    def __init__(self, dims: int) -> None:
        self._dims = dims
        self._matrix = np.zeros((0, dims), np.float32)
        self._free: list[int] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used - len(self._free)

    @property
    def size_bytes(self) -> int:
        """What the matrix takes."""
        return int(self._matrix.nbytes)

    def add(self, vector: Vector) -> int:
        """Gives the slot, which is its owner's until `remove`. Raises ValueError for another dimension."""
        if vector.shape != (self._dims,):
            raise ValueError(f"a vector of {vector.shape} among those of {self._dims}")
        slot = self._free.pop() if self._free else self._grow()
        self._matrix[slot] = vector
        return slot

    def remove(self, slot: int) -> None:
        """Frees a slot."""
        self._free.append(slot)

    def search(self, vector: Vector, most: int) -> list[tuple[int, float]]:
        """At most `most` slots and their cosines, the nearest first."""
        if not len(self):
            return []
        near = self._matrix[: self._used] @ vector
        near[self._free] = -np.inf
        most = min(most, len(self))
        best = np.argpartition(near, -most)[-most:].tolist()
        return sorted(((slot, float(near[slot])) for slot in best), key=lambda found: -found[1])

    def _grow(self) -> int:
        if self._used == len(self._matrix):
            larger = np.zeros((max(_FIRST_SLOTS, 2 * self._used), self._dims), np.float32)
            larger[: self._used] = self._matrix
            self._matrix = larger
        self._used += 1
        return self._used - 1
