"""An index of FAISS from which rows can be taken.

FAISS numbers what is added: 0, 1, 2 … An HNSW cannot take anything out again, and IVF reads all its lists for it. So a row that
goes leaves a tombstone, and a row that comes again gets another label. Tombstones are found like others, and dropped then; a
search that finds little else is made again with more effort.

    slot   4  ─→  label 17  ─→  slot 4        label 3 ─→ nobody: a tombstone
           _label_of            _slot_of
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import faiss
import numpy as np

from services.cache.core.semantic.kinds import Kind, index_bytes
from services.cache.interfaces import Slots, Vectors

# Candidates that are scored by their whole vectors. Of the five nearest of 150,000 questions 1.00 were among them, while the
# five that IVF-PQ itself takes for the nearest had 0.51 of them.
_FETCHED: Final = 64
# Lists of an IVF that are read: 1 in 62 of a partition of 1,000,000. With half as many 0.97 of the five nearest are found there.
_READ_LISTS: Final = 64
# Where the first search finds mostly tombstones, it is made again with so many times the effort.
_HARDER: Final = 8
_DEAD_MOST: Final = 0.25
_DRIFT_MOST: Final = 2.0
_NOBODY: Final = -1
_BUFFER_BYTES: Final = 1024**2


class TombstoneIndex:
    """See `ApproximateIndex`. `index` is an HNSW or an IVF of inner products, trained, empty or with rows of `slots` by label."""

    def __init__(self, kind: Kind, index: Any, slots: Slots | None = None) -> None:
        self._kind = kind
        self.faiss: Final = index
        self._lock = threading.Lock()
        self._slot_of: Slots = np.full(0, _NOBODY, np.int64)
        self._label_of: Slots = np.full(0, _NOBODY, np.int64)
        self._labels = 0
        self._alive = 0
        if slots is not None:
            self._label(slots)
        self._even = self._imbalance()

    @property
    def kind(self) -> Kind:
        """See `ApproximateIndex`."""
        return self._kind

    @property
    def size_bytes(self) -> int:
        """See `ApproximateIndex`."""
        return index_bytes(self._kind, self._labels, self.faiss.d)

    @property
    def worn(self) -> bool:
        """A quarter are tombstones, or what came since lies in few of the lists."""
        return self._labels - self._alive > _DEAD_MOST * self._labels or self._imbalance() > _DRIFT_MOST * self._even

    @property
    def changes(self) -> int:
        """See `ApproximateIndex`."""
        return 2 * self._labels - self._alive

    def labels(self) -> Slots:
        """See `ApproximateIndex`."""
        with self._lock:
            return self._slot_of[: self._labels].copy()

    def write(self, put: Callable[[bytes], object]) -> None:
        """See `ApproximateIndex`."""
        writer = faiss.PyCallbackIOWriter(put)
        # Its objects are not deleted with what they are handed to: held until it is done.
        buffered = faiss.BufferedIOWriter(writer, _BUFFER_BYTES)
        faiss.write_index(self.faiss, buffered)
        del buffered

    def settled(self) -> None:
        """What lists look like now is what they are compared with from now on."""
        self._even = self._imbalance()

    def add(self, slots: Slots, vectors: Vectors) -> None:
        """See `ApproximateIndex`."""
        _one_thread()
        self.faiss.add(vectors)
        self._label(slots)

    def remove(self, slot: int) -> None:
        """See `ApproximateIndex`."""
        with self._lock:
            label = int(self._label_of[slot]) if slot < len(self._label_of) else _NOBODY
            if label != _NOBODY:
                self._label_of[slot] = _NOBODY
                self._bury(label)

    def nearest(self, vectors: Vectors, most: int) -> list[Slots]:
        """See `ApproximateIndex`."""
        _one_thread()
        fetched = max(_FETCHED, most)
        found = self._searched(vectors, fetched, 1)
        if any(len(each) < min(most, self._alive) for each in found):
            found = self._searched(vectors, _HARDER * fetched, _HARDER)
        return found

    def _searched(self, vectors: Vectors, fetched: int, effort: int) -> list[Slots]:
        if self._kind is Kind.HNSW:
            parameters = faiss.SearchParametersHNSW(efSearch=fetched)
        else:
            parameters = faiss.SearchParametersIVF(nprobe=min(effort * _READ_LISTS, self.faiss.nlist))
        _, labels = self.faiss.search(vectors, fetched, params=parameters)
        with self._lock:
            slots = np.where(labels >= 0, self._slot_of[labels], _NOBODY)
        return [row[row >= 0] for row in slots]

    def _label(self, slots: Slots) -> None:
        with self._lock:
            first, self._labels = self._labels, self._labels + len(slots)
            labels = np.arange(first, self._labels)
            self._slot_of = _grown(self._slot_of, self._labels)
            self._label_of = _grown(self._label_of, int(slots.max(initial=0)) + 1)
            known = slots >= 0
            for label in self._label_of[slots[known]].tolist():
                if label != _NOBODY:
                    self._bury(label)
            slots, labels = slots[known], labels[known]
            self._slot_of[labels], self._label_of[slots] = slots, labels
            self._alive += len(slots)

    def _bury(self, label: int) -> None:
        self._slot_of[label] = _NOBODY
        self._alive -= 1

    def _imbalance(self) -> float:
        """1 where all lists of an IVF are equally long, more the more they differ."""
        if self._kind is Kind.HNSW or not self._labels:
            return 1.0
        return float(self.faiss.invlists.imbalance_factor())


def _grown(table: Slots, least: int) -> Slots:
    if len(table) >= least:
        return table
    larger = np.full(max(least, 2 * len(table)), _NOBODY, np.int64)
    larger[: len(table)] = table
    return larger


def _one_thread() -> None:
    """The setting is each thread's own: one that was made elsewhere starts with as many as there are cores."""
    faiss.omp_set_num_threads(1)


def read(kind: Kind, get: Callable[[int], bytes], slots: Slots) -> TombstoneIndex:
    """See `IndexReader`."""
    index = faiss.read_index(faiss.BufferedIOReader(faiss.PyCallbackIOReader(get), _BUFFER_BYTES))
    if index.ntotal != len(slots):
        raise ValueError(f"{index.ntotal} rows and {len(slots)} entries")
    return TombstoneIndex(kind, index, slots)
