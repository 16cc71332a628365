"""Indexes that find candidates without reading every vector: FAISS behind the port `ApproximateIndex`."""

from __future__ import annotations

from collections.abc import Callable

from services.cache.core.semantic.kinds import Kind
from services.cache.interfaces import ApproximateIndex, Slots, Vectors


def build(
    kind: Kind, slots: Slots, rows: Callable[[Slots], Vectors], stopped: Callable[[], bool]
) -> ApproximateIndex | None:
    """See `IndexBuilder`."""
    # FAISS takes 37 MB of memory: only who has a large partition loads it.
    from services.cache.io.indexes import building

    return building.build(kind, slots, rows, stopped)


def read(kind: Kind, get: Callable[[int], bytes], slots: Slots) -> ApproximateIndex:
    """See `IndexReader`."""
    from services.cache.io.indexes import tombstones

    return tombstones.read(kind, get, slots)
