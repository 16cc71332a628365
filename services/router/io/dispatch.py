"""Tasks into lanes: those that wait at the same time share a round trip."""

from __future__ import annotations

import asyncio

import structlog
from redis.exceptions import RedisError

from streamway.errors import StoreUnavailable
from streamway.lanes import NewTask, add_generations
from streamway.runtime.tasks import TaskScope
from streamway.valkey.connection import Valkey

_log = structlog.get_logger("router")
_MOST_TASKS = 100
_MOST_BYTES = 4 * 1024 * 1024


class Dispatcher:
    """Writes records and task copies. One writer; a burst of a thousand needs ten round trips, not a thousand connections."""

    def __init__(self, valkey: Valkey, scope: TaskScope, timeout_s: float) -> None:
        self._valkey = valkey
        self._timeout_s = timeout_s
        self._waiting: list[tuple[NewTask, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        scope.spawn(self._run(), "dispatch")

    async def add(self, task: NewTask) -> None:
        """Returns when the task is in its lane. Raises StoreUnavailable; then it may or may not be there."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((task, done))
        self._wake.set()
        await done

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = self._next_batch()
                try:
                    async with asyncio.timeout(self._timeout_s):
                        await add_generations(self._valkey, [task for task, _ in batch])
                except (RedisError, OSError) as problem:
                    _log.warning("dispatch_failed", tasks=len(batch), problem=type(problem).__name__)
                    # Whoever waits behind would only wait as long again.
                    batch, self._waiting = batch + self._waiting, []
                    for _, done in batch:
                        if not done.done():
                            done.set_exception(StoreUnavailable())
                else:
                    for _, done in batch:
                        if not done.done():
                            done.set_result(None)

    def _next_batch(self) -> list[tuple[NewTask, asyncio.Future[None]]]:
        size, count = 0, 0
        for task, _ in self._waiting[:_MOST_TASKS]:
            size += task.request.ByteSize()
            if count and size > _MOST_BYTES:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch
