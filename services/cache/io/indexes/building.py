"""Building indexes with FAISS, in the thread of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import faiss

from services.cache.core.semantic.kinds import LINKS, Kind, code_bytes, lists
from services.cache.interfaces import Slots, Vectors
from services.cache.io.indexes.tombstones import TombstoneIndex

# Candidates looked at while an HNSW is built.
_BUILT_WITH: Final = 100
# Vectors for each centroid that it is trained with, and turns.
_SAMPLE: Final = 32
_TURNS: Final = 8
# Vectors that codes are made from; an IVF-PQ cannot do with less than 256.
_LEAST_SAMPLE: Final = 20000
# Vectors that are added before it looks whether it was stopped.
_PIECE: Final = 512


def build(
    kind: Kind, slots: Slots, rows: Callable[[Slots], Vectors], stopped: Callable[[], bool]
) -> TombstoneIndex | None:
    """See `IndexBuilder`. Raises ValueError for the flat kind, RuntimeError for an IVF-PQ of less than 256 vectors."""
    faiss.omp_set_num_threads(1)
    dims = rows(slots[:1]).shape[1]
    wanted = max(_LEAST_SAMPLE, _SAMPLE * lists(len(slots))) if kind is Kind.IVF_PQ else _LEAST_SAMPLE
    # Evenly from all: vectors that came together are alike.
    sample = rows(slots[:: max(1, len(slots) // wanted)])
    if kind is Kind.HNSW:
        index = _hnsw(sample, dims)
    elif kind is Kind.IVF_PQ:
        index = _ivf_pq(sample, dims, lists(len(slots)), stopped)
    else:
        raise ValueError(f"{kind} is not built")
    built = TombstoneIndex(kind, index)
    for start in range(0, len(slots), _PIECE):
        if stopped():
            return None
        piece = slots[start : start + _PIECE]
        built.add(piece, rows(piece))
    built.settled()
    return built


def _hnsw(sample: Vectors, dims: int) -> Any:
    # 8 bits a number are enough to find candidates, are read faster and take a quarter of what whole vectors would.
    index = faiss.IndexHNSWSQ(dims, faiss.ScalarQuantizer.QT_8bit, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _BUILT_WITH
    index.train(sample)
    return index


def _ivf_pq(sample: Vectors, dims: int, count: int, stopped: Callable[[], bool]) -> Any:
    quantizer = faiss.IndexFlatIP(dims)
    centroids = None
    for _ in range(_TURNS):
        if not stopped():
            turn = faiss.Kmeans(dims, count, niter=1, spherical=True, min_points_per_centroid=1, seed=1)
            turn.train(sample, init_centroids=centroids)
            centroids = turn.centroids
    quantizer.add(centroids if centroids is not None else sample[:count])
    index = faiss.IndexIVFPQ(quantizer, dims, count, code_bytes(dims), 8, faiss.METRIC_INNER_PRODUCT)
    index.pq.cp.min_points_per_centroid = 1
    index.train(sample)
    return index
