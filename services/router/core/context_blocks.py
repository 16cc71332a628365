"""Blocks of 1,024 bytes that contexts are kept in: a context is a chain of them, and none is ever cut.

    chain 7 → 12 → 3     │ 1,024 bytes │ 1,024 bytes │ 310 bytes, 714 free │     the next turn goes on in block 3

Blocks lie in extents of 1 MiB that are taken when the ones before are full, so that what thousands of growing contexts free and
take again stays in one place. An extent is not given back; what is free in it is used first.
"""

from __future__ import annotations

from array import array
from typing import Final

BLOCK_BYTES: Final = 1024
_BLOCKS_IN_EXTENT: Final = 1024


class Chain:
    """The blocks of one context, in order, and how many bytes are in them."""

    __slots__ = ("blocks", "length")

    def __init__(self) -> None:
        self.blocks = array("I")
        self.length = 0


class Blocks:
    """All blocks."""

    def __init__(self) -> None:
        self._extents: list[bytearray] = []
        self._free = array("I")

    @property
    def used_bytes(self) -> int:
        """Of the blocks that belong to a chain; what is free in a last block counts as used."""
        return (len(self._extents) * _BLOCKS_IN_EXTENT - len(self._free)) * BLOCK_BYTES

    @property
    def taken_bytes(self) -> int:
        """Of all extents."""
        return len(self._extents) * _BLOCKS_IN_EXTENT * BLOCK_BYTES

    def append(self, chain: Chain, content: bytes) -> None:
        """Writes behind what is there."""
        at = 0
        while at < len(content):
            inside = chain.length % BLOCK_BYTES
            if not inside:
                chain.blocks.append(self._take())
            extent, start = self._place(chain.blocks[-1])
            size = min(BLOCK_BYTES - inside, len(content) - at)
            extent[start + inside : start + inside + size] = content[at : at + size]
            chain.length += size
            at += size

    def read(self, chain: Chain) -> bytes:
        """All of it."""
        parts: list[memoryview] = []
        left = chain.length
        for block in chain.blocks:
            extent, start = self._place(block)
            parts.append(memoryview(extent)[start : start + min(BLOCK_BYTES, left)])
            left -= BLOCK_BYTES
        return b"".join(parts)

    def shorten(self, chain: Chain, length: int) -> None:
        """Frees what lies behind `length` bytes."""
        needed = -(-length // BLOCK_BYTES)
        self._free.extend(chain.blocks[needed:])
        del chain.blocks[needed:]
        chain.length = min(length, chain.length)

    def _take(self) -> int:
        if not self._free:
            first = len(self._extents) * _BLOCKS_IN_EXTENT
            self._extents.append(bytearray(_BLOCKS_IN_EXTENT * BLOCK_BYTES))
            self._free.extend(range(first + _BLOCKS_IN_EXTENT - 1, first - 1, -1))
        return self._free.pop()

    def _place(self, block: int) -> tuple[bytearray, int]:
        extent, inside = divmod(block, _BLOCKS_IN_EXTENT)
        return self._extents[extent], inside * BLOCK_BYTES
