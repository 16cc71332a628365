"""Keeps large partitions searchable in little time: builds their indexes, and fills them with what is new."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import numpy as np
import structlog

from services.cache.core.semantic.growth import Growth
from services.cache.core.semantic.kinds import IndexLimits, Kind
from services.cache.core.semantic.partition import Partition
from services.cache.core.semantic.partitions import Partitions
from services.cache.interfaces import ApproximateIndex, IndexBuilder, Slots
from services.cache.io.index_files import IndexFiles, Loaded
from services.cache.io.search_thread import SearchThread
from streamway.runtime.tasks import TaskScope
from streamway.runtime.threads import in_thread

_log = structlog.get_logger("cache")

# Seconds between two looks at what partitions have become.
_EVERY_S: Final = 1.0
# Rows that go into an index between two searches: a row takes half a millisecond in an HNSW of a million.
_PIECE: Final = 2
# A file is written again when such a share of its index has changed.
_KEEP_AT: Final = 0.1


class Upkeep:
    """Reads what `partitions` are, `every_s`; one index is built at a time, in a thread of its own, and put in place whole.

    Searches and changes go on meanwhile: what changed while an index was built is put right when it is put in place.
    """

    def __init__(
        self,
        partitions: Partitions,
        thread: SearchThread,
        build: IndexBuilder,
        limits: IndexLimits,
        scope: TaskScope,
        *,
        files: IndexFiles | None = None,
        encoder: str = "",
        every_s: float = _EVERY_S,
    ) -> None:
        self._partitions = partitions
        self._thread = thread
        self._make = build
        self._limits = limits
        self._files = files
        self._encoder = encoder
        self._every_s = every_s
        # Held by who adds to an index, or writes it.
        self._steady = asyncio.Lock()
        # By partition: changes of its index when it was written.
        self._written: dict[bytes, int] = {}
        self._growth = Growth()
        self.builds = 0
        scope.spawn(self._fill(), "index-fill")
        scope.spawn(self._build(), "index-build")

    async def _fill(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for key, partition in list(self._partitions.large.items()):
                while partition.index.sparse and not partition.searches:
                    self._partitions.compact(key)
                    await asyncio.sleep(0)
                # One that is built anew gets all of it at once.
                while not partition.worn and len(slots := partition.fresh(_PIECE)):
                    await self._add(partition, slots)

    async def _add(self, partition: Partition, slots: Slots) -> None:
        shortcut, rows = partition.shortcut, partition.view().rows(slots)
        if shortcut is None:
            return
        watch = partition.watch()
        try:
            async with self._steady:
                await self._thread.run(lambda: shortcut.add(slots, rows))
        except BaseException:
            partition.unwatch(watch)
            raise
        partition.added(slots, shortcut, watch)

    async def _build(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for key, partition in list(self._partitions.large.items()):
                kind = self._wanted(partition)
                if not self._growth.settled(key, len(partition)):
                    continue
                if kind is Kind.FLAT:
                    if partition.shortcut is not None:
                        partition.install(None, partition.watch())
                        await self._forget(key)
                elif kind is not partition.kind or partition.worn:
                    await self._replace(key, partition, kind)
                await self._keep(key, partition)
            for key in self._growth.gone(set(self._partitions.large)):
                await self._forget(key)

    def _wanted(self, partition: Partition) -> Kind:
        mine = partition.shortcut.size_bytes if partition.shortcut is not None else 0
        others_bytes = sum(self._partitions.index_bytes.values()) - mine
        return self._limits.wanted(len(partition), self._partitions.dims, partition.kind, others_bytes)

    async def _replace(self, key: bytes, partition: Partition, kind: Kind) -> None:
        if partition.shortcut is None and await self._load(key, partition, kind):
            return
        slots, view, watch = partition.index.live(), partition.view(), partition.watch()
        stop = threading.Event()
        built: ApproximateIndex | None = None
        try:
            built = await in_thread(lambda: self._make(kind, slots, view.rows, stop.is_set))
        except (MemoryError, RuntimeError) as problem:
            # Searches go on as before, and it is tried again.
            _log.error("index_not_built", kind=kind.value, vectors=len(slots), exc_info=problem)
        finally:
            stop.set()
            if built is None:
                partition.unwatch(watch)
        if built is not None:
            partition.install(built, watch)
            self._written.pop(key, None)
            self.builds += 1
            _log.info("index_built", kind=kind.value, vectors=len(slots), bytes=built.size_bytes)

    async def _load(self, key: bytes, partition: Partition, kind: Kind) -> bool:
        """Takes the index from its file. False where that has none."""
        files, dims, slot_of = self._files, self._partitions.dims, self._partitions.slot
        if files is None or key in self._written:
            return False
        slots, watch = partition.index.live(), partition.watch()
        loaded: Loaded | None = None
        try:
            loaded = await in_thread(
                lambda: files.load(key, self._encoder, dims, kind, lambda entry: slot_of(key, entry))
            )
        finally:
            if loaded is None:
                partition.unwatch(watch)
        if loaded is None:
            return False
        watch.update(np.setdiff1d(slots, loaded.slots, assume_unique=True).tolist())
        partition.install(loaded.shortcut, watch)
        self._written[key] = loaded.shortcut.changes
        _log.info("index_read", kind=kind.value, vectors=len(loaded.slots), missing=len(slots) - len(loaded.slots))
        return True

    async def _keep(self, key: bytes, partition: Partition) -> None:
        """Writes the index where a tenth of it has changed since."""
        shortcut = partition.shortcut
        if self._files is None or shortcut is None:
            return
        written = self._written.get(key)
        if written is not None and shortcut.changes - written < _KEEP_AT * len(partition):
            return
        async with self._steady:
            # Told first: what cannot be written is tried again when as much has changed again.
            self._written[key] = shortcut.changes
            labels, watch = shortcut.labels(), partition.watch()
            try:
                with self._files.writing(key, self._encoder, shortcut, self._partitions.dims) as writer:
                    await in_thread(writer.begin)
                    entries = await in_thread(lambda: partition.entries(labels))
                    # Whose they were is not known of those: they count as gone.
                    changed = np.fromiter(watch, np.int64)
                    for label in np.flatnonzero(np.isin(labels, changed)).tolist():
                        entries[label] = ""
                    await in_thread(lambda: writer.finish(entries))
            except (OSError, RuntimeError) as problem:
                self._files.outcomes["failed"] += 1
                _log.warning("index_not_written", problem=type(problem).__name__)
            finally:
                partition.unwatch(watch)

    async def _forget(self, key: bytes) -> None:
        """No file for a context that is not large any more."""
        files = self._files
        if files is not None and self._written.pop(key, None) is not None:
            await in_thread(lambda: files.remove(key))
