"""Rows for many small matrices, in a few large ones.

A slab has 1,024 rows. It is handed out in ranges of 1, 2, 4 … 1,024 rows, as buddies: a range is halved until it fits, and two
halves that are both free are one again.

    0               512     768 896   1024
    ├───────────────┼───────┼───┼─────┤      a range of n rows begins at a multiple of n, so that its
    │ one partition │ free  │ b │  c  │      buddy begins at `first ^ n`
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from services.cache.interfaces import Vectors

SLAB_ROWS: Final = 1024


class Range(NamedTuple):
    """Rows that one partition has for itself."""

    slab: int
    first: int
    rows: int


class Slabs:
    """Hands out ranges of rows of `dims` numbers, and takes them back."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._slabs: dict[int, Vectors] = {}
        self._made = 0
        # By the number of rows: where free ranges of that many begin.
        self._free: dict[int, set[tuple[int, int]]] = {}

    @property
    def size_bytes(self) -> int:
        """What all slabs take, used or free."""
        return len(self._slabs) * SLAB_ROWS * self.dims * 4

    def take(self, rows: int) -> Range:
        """A range of `rows`, a power of two up to SLAB_ROWS; what is in it is left over from others."""
        found = rows
        while found <= SLAB_ROWS and not self._free.get(found):
            found *= 2
        if found > SLAB_ROWS:
            slab, first, found = self._made, 0, SLAB_ROWS
            self._slabs[slab] = np.empty((SLAB_ROWS, self.dims), np.float32)
            self._made += 1
        else:
            slab, first = self._free[found].pop()
        while found > rows:
            found //= 2
            self._free.setdefault(found, set()).add((slab, first + found))
        return Range(slab, first, rows)

    def give(self, taken: Range) -> None:
        """Takes a range back. A slab that is free altogether is let go; one is kept, for who comes next."""
        slab, first, rows = taken
        while rows < SLAB_ROWS and (slab, first ^ rows) in self._free.get(rows, ()):
            self._free[rows].remove((slab, first ^ rows))
            first &= ~rows
            rows *= 2
        if rows == SLAB_ROWS and self._free.get(rows):
            del self._slabs[slab]
        else:
            self._free.setdefault(rows, set()).add((slab, first))

    def matrix(self, taken: Range) -> Vectors:
        """The rows of a range, not a copy. To be used only until it is given back."""
        return self._slabs[taken.slab][taken.first : taken.first + taken.rows]
