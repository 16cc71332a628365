"""Finding the nearest entries without holding the event loop up."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import numpy as np
import structlog

from services.cache.core.semantic.partition import Partition
from services.cache.core.semantic.partitions import Neighbour, Partitions
from services.cache.interfaces import Slots, Vector
from services.cache.io.search_thread import SearchThread
from streamway.runtime.tasks import TaskScope

_log = structlog.get_logger("cache")

# So many vectors are read faster than a thread is woken: 0.2 ms for 384 numbers each.
AT_ONCE: Final = 2048
# Questions that share one pass over a partition.
_MOST_BATCH: Final = 16


class _Search(NamedTuple):
    partition: Partition
    vector: Vector
    most: int
    slots: asyncio.Future[Slots]


class Searching:
    """Searches `partitions`: short ones at once, long ones in a thread, all that came meanwhile for one partition in one pass.

    Entries may come and go while a search runs: what it gives is there when it ends, with the similarity it has then.
    """

    def __init__(self, partitions: Partitions, thread: SearchThread, scope: TaskScope) -> None:
        self.partitions: Final = partitions
        self._waiting: list[_Search] = []
        self._wake = asyncio.Event()
        self._thread = thread
        scope.spawn(self._run(), "search")

    async def nearest(self, partition: bytes, vector: Vector, most: int) -> list[Neighbour]:
        """At most `most` entries of a partition, the nearest first."""
        within = self.partitions.partition(partition)
        if within is None:
            return []
        if len(within) <= AT_ONCE or within.index.shared:
            return self.partitions.named(within.nearest(vector, most))
        search = _Search(within, vector, most, asyncio.get_running_loop().create_future())
        self._waiting.append(search)
        self._wake.set()
        within.searches += 1
        try:
            slots = await search.slots
        finally:
            within.searches -= 1
        return self.partitions.named(within.neighbours(slots, vector, most))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._next():
                found = await self._searched(batch)
                for search, slots in zip(batch, found, strict=True):
                    if not search.slots.done():
                        search.slots.set_result(slots)

    def _next(self) -> list[_Search]:
        """The longest waiting one, and what waits for the same partition."""
        # Who gave up meanwhile need not be answered.
        waiting = [search for search in self._waiting if not search.slots.done()]
        same = [search for search in waiting if search.partition is waiting[0].partition][:_MOST_BATCH]
        taken = set(map(id, same))
        self._waiting = [search for search in waiting if id(search) not in taken]
        return same

    async def _searched(self, batch: list[_Search]) -> list[Slots]:
        view = batch[0].partition.view()
        vectors = np.stack([search.vector for search in batch])
        most = max(search.most for search in batch)
        try:
            return await self._thread.run(lambda: view.nearest(vectors, most))
        except (MemoryError, RuntimeError, ValueError) as problem:
            # What native code says goes to the log; the questions are misses.
            _log.exception("search_failed", exc_info=problem)
            return [np.zeros(0, np.int64) for _ in batch]
