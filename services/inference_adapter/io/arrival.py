"""Waiting for new tasks, or for room for those that are there already."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from redis.exceptions import RedisError

from streamway.lanes import LaneReader

_BLOCK_MS: Final = 1000


class Arrival:
    """One blocking look at some lanes at a time. It is never cut short, which would cost its connection: who stops waiting for
    it finds it again the next time."""

    def __init__(self, lanes: LaneReader, group: asyncio.TaskGroup) -> None:
        self._lanes = lanes
        self._group = group
        self._looking: asyncio.Task[Exception | None] | None = None

    async def wait(self, room: Coroutine[object, object, None] | None) -> None:
        """Returns when something may have arrived, after a second, or when `room` is done. Raises RedisError or OSError."""
        looking = self._looking or self._group.create_task(self._look())
        self._looking = looking
        if room is None:
            await asyncio.wait({looking})
        else:
            freed = self._group.create_task(room)
            try:
                await asyncio.wait({looking, freed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                freed.cancel()
        if looking.done():
            self._looking = None
            problem = looking.result()
            if problem is not None:
                raise problem

    async def _look(self) -> Exception | None:
        try:
            await self._lanes.wait(_BLOCK_MS)
        except (RedisError, OSError) as problem:
            return problem
        return None
