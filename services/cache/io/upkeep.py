"""Keeps large partitions searchable in little time: builds their indexes, and fills them with what is new."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import structlog

from services.cache.core.semantic.kinds import IndexLimits, Kind
from services.cache.core.semantic.partition import Partition
from services.cache.core.semantic.partitions import Partitions
from services.cache.interfaces import ApproximateIndex, IndexBuilder, Slots
from services.cache.io.search_thread import SearchThread
from streamway.runtime.tasks import TaskScope
from streamway.runtime.threads import in_thread

_log = structlog.get_logger("cache")

# Seconds between two looks at what partitions have become.
_EVERY_S: Final = 1.0
# Rows that go into an index between two searches: a row takes half a millisecond in an HNSW of a million.
_PIECE: Final = 2
# A partition that grew by a greater share since the last look is filled just now, as at a start: it is waited for, for a while.
_GROWING: Final = 0.02
_PATIENCE: Final = 30


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
        every_s: float = _EVERY_S,
    ) -> None:
        self._partitions = partitions
        self._thread = thread
        self._make = build
        self._limits = limits
        self._every_s = every_s
        # By partition: vectors at the last look, and looks at which it was growing.
        self._seen: dict[bytes, tuple[int, int]] = {}
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
                if not self._settled(key, len(partition)) or (kind is partition.kind and not partition.worn):
                    continue
                if kind is Kind.FLAT:
                    partition.install(None, partition.watch())
                else:
                    await self._replace(partition, kind)
            self._seen = {key: self._seen[key] for key in self._partitions.large if key in self._seen}

    def _wanted(self, partition: Partition) -> Kind:
        mine = partition.shortcut.size_bytes if partition.shortcut is not None else 0
        others_bytes = sum(self._partitions.index_bytes.values()) - mine
        return self._limits.wanted(len(partition), self._partitions.dims, partition.kind, others_bytes)

    def _settled(self, key: bytes, count: int) -> bool:
        before, looks = self._seen.get(key, (0, 0))
        growing = count > (1 + _GROWING) * before and looks < _PATIENCE
        self._seen[key] = (count, looks + 1 if growing else 0)
        return not growing

    async def _replace(self, partition: Partition, kind: Kind) -> None:
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
            self.builds += 1
            _log.info("index_built", kind=kind.value, vectors=len(slots), bytes=built.size_bytes)
