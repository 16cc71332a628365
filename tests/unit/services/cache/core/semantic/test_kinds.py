"""Which kind of index a partition gets."""

from __future__ import annotations

import pytest

from services.cache.core.semantic.kinds import IndexLimits, Kind, code_bytes, index_bytes

LIMITS = IndexLimits(flat_most=50_000, hnsw_most=1_000_000, limit_bytes=600 * 1024**2)


@pytest.mark.parametrize(
    ("count", "now", "others_bytes", "wanted"),
    [
        (50_000, Kind.FLAT, 0, Kind.FLAT),
        (50_001, Kind.FLAT, 0, Kind.HNSW),
        (25_001, Kind.HNSW, 0, Kind.HNSW),
        (25_000, Kind.HNSW, 0, Kind.FLAT),
        (1_000_000, Kind.HNSW, 0, Kind.HNSW),
        (1_000_001, Kind.HNSW, 0, Kind.IVF_PQ),
        (600_000, Kind.IVF_PQ, 0, Kind.IVF_PQ),
        (400_000, Kind.IVF_PQ, 0, Kind.HNSW),
        (60_000, Kind.FLAT, 590 * 1024**2, Kind.IVF_PQ),
    ],
)
def test_by_size_and_memory(count: int, now: Kind, others_bytes: int, wanted: Kind) -> None:
    assert LIMITS.wanted(count, 384, now, others_bytes) is wanted


def test_an_ivf_pq_is_a_fraction_of_an_hnsw() -> None:
    assert index_bytes(Kind.IVF_PQ, 1_000_000, 384) * 5 < index_bytes(Kind.HNSW, 1_000_000, 384) < 600 * 1000**2
    assert index_bytes(Kind.FLAT, 1_000_000, 384) == 0


@pytest.mark.parametrize(("dims", "wanted"), [(384, 48), (1024, 128), (1536, 192), (100, 10), (7, 1), (383, 1)])
def test_code_bytes_divide_the_numbers(dims: int, wanted: int) -> None:
    assert code_bytes(dims) == wanted
