"""How often keys were used lately, in a byte or less each (Cormode, Muthukrishnan 2005)."""

from __future__ import annotations

from typing import Final

import xxhash

from services.cache.core.eviction.port import Key

_MOST: Final = 15
_ROWS: Final = 4
_LEAST_WIDTH: Final = 256
_HALVES: Final = bytes(value // 2 for value in range(256))


class Sketch:
    """Counts to 15 and halves all counts after ten times as many uses as there are keys: old fame fades."""

    def __init__(self) -> None:
        self._width = _LEAST_WIDTH
        self._rows = [bytearray(self._width) for _ in range(_ROWS)]
        self._uses = 0

    def fit(self, keys: int) -> None:
        """As many keys are held: a sketch that is too small grows, and begins with each count where it was."""
        while self._width < keys:
            self._width *= 2
            self._rows = [row + row for row in self._rows]

    def count(self, key: Key) -> None:
        """A use."""
        for row, place in zip(self._rows, self._places(key), strict=True):
            if row[place] < _MOST:
                row[place] += 1
        self._uses += 1
        if self._uses >= 10 * self._width:
            self._rows = [row.translate(_HALVES) for row in self._rows]
            self._uses //= 2

    def estimate(self, key: Key) -> int:
        """Uses, or a few more."""
        return min(row[place] for row, place in zip(self._rows, self._places(key), strict=True))

    def _places(self, key: Key) -> tuple[int, int, int, int]:
        digest, mask = xxhash.xxh3_128_intdigest(key), self._width - 1
        return digest & mask, digest >> 32 & mask, digest >> 64 & mask, digest >> 96 & mask
