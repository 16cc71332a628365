"""Which kind of index a partition gets, and how large that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# A partition becomes small again at this share of the size at which it became large: it does not go to and fro.
_BACK: Final = 0.5

# Of an HNSW: links of a node on each level but the lowest, which has twice as many.
LINKS: Final = 16
# Of an IVF-PQ: numbers of a vector that share a byte of its code.
_NUMBERS_A_BYTE: Final = 8
# Tables that tell slots from labels.
_LABEL_BYTES: Final = 16


class Kind(StrEnum):
    """`FLAT` compares every vector; the others find candidates, which are compared then."""

    FLAT = "flat"
    HNSW = "hnsw"
    IVF_PQ = "ivf_pq"


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Most vectors of a partition that are compared one by one, and most that get an HNSW; most bytes of all indexes."""

    flat_most: int
    hnsw_most: int
    limit_bytes: int

    def wanted(self, count: int, dims: int, now: Kind, others_bytes: int) -> Kind:
        """For a partition of `count` vectors whose index is `now`; the indexes of other partitions take `others_bytes`."""
        if count <= (self.flat_most * _BACK if now is not Kind.FLAT else self.flat_most):
            return Kind.FLAT
        if count > (self.hnsw_most * _BACK if now is Kind.IVF_PQ else self.hnsw_most):
            return Kind.IVF_PQ
        hnsw_bytes = index_bytes(Kind.HNSW, count, dims)
        return Kind.HNSW if others_bytes + hnsw_bytes <= self.limit_bytes else Kind.IVF_PQ


def index_bytes(kind: Kind, count: int, dims: int) -> int:
    """About what an index of `count` vectors takes beside the vectors."""
    if kind is Kind.HNSW:
        # A byte a number; links of 4 bytes on the lowest level, and on a fifteenth of the others; where they begin, the level.
        return count * (dims + 4 * 2 * LINKS + 4 * LINKS // (LINKS - 1) + 12 + _LABEL_BYTES)
    if kind is Kind.IVF_PQ:
        return count * (code_bytes(dims) + 8 + _LABEL_BYTES) + 4 * dims * (lists(count) + 256)
    return 0


def lists(count: int) -> int:
    """Lists of an IVF of `count` vectors."""
    return max(1, min(int(4 * math.sqrt(count)), count // 8))


def code_bytes(dims: int) -> int:
    """The most bytes that divide the numbers of a vector evenly, at most one for eight of them."""
    return max(number for number in range(1, max(1, dims // _NUMBERS_A_BYTE) + 1) if dims % number == 0)
