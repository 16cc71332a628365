"""Gives a task without a response channel whose engine call made no token to another worker.

What has a channel is moved by the rules of the journal. Without one nothing is fenced, and nothing has to be: no token was made,
and the call has been aborted. What readers were told of it, that it had begun, goes with the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.core.memory import Gone, Memory
from services.inference_adapter.io.books import Books
from services.inference_adapter.io.generation import Generation
from services.inference_adapter.io.journaling import Journaling
from services.inference_adapter.io.retries import Retries
from streamway.errors import EventsExpired, StreamwayError
from streamway.lanes import EarlierCall, TakenTask
from streamway.valkey.session import LinkLost, StoreRefused

_log = structlog.get_logger("adapter")
_PATIENCE_S: Final = 2.0


class Retrying:
    """`on_moved` is told of generations that are another worker's now. Those that are not end with their error."""

    def __init__(
        self,
        retries: Retries,
        journaling: Journaling,
        books: Books,
        memory: Memory,
        on_moved: Callable[[Generation], None],
    ) -> None:
        self._retries = retries
        self._journaling = journaling
        self._books = books
        self._memory = memory
        self._on_moved = on_moved

    def begin(self, generation: Generation, error: StreamwayError) -> None:
        """Its call came to nothing."""
        self._journaling.spawn(self._run(generation, error), "retry")

    async def _run(self, generation: Generation, error: StreamwayError) -> None:
        task = generation.task
        assert task is not None, "only what came through a lane can be given away"
        before = (*task.copy.before, generation.call_told)
        tried = {call.worker for call in before}
        if not await self._retries.granted(error, generation.request.model, task.copy, tried):
            generation.stop(error)
            return
        if generation.over:  # cancelled in the meantime
            return
        generation.leave()
        if await self._moved(generation, task, before, tried):
            generation.left()
            self._on_moved(generation)
            told = generation.withdrawn or EventsExpired(generation.id, moved=error.name)
            for reader in generation.transcript.readers[:]:
                reader.fail(told)
            self._memory.forget(generation.transcript, Gone.MOVED)
        else:
            generation.stay()
            generation.stop(generation.withdrawn or error)

    async def _moved(
        self, generation: Generation, task: TakenTask, before: tuple[EarlierCall, ...], tried: set[str]
    ) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                # What this worker still has to write would say that it runs here.
                await self._books.withdraw(generation.id)
                return bool(await self._journaling.retry_elsewhere(task, generation.request.model, before, tried))
        except (TimeoutError, RedisError, OSError, LinkLost, StoreRefused) as problem:
            _log.warning("task_not_moved", generation=generation.id, problem=type(problem).__name__)
            return False
