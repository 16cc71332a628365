"""From the lanes into the window."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.io.books import Books
from services.inference_adapter.io.worker import Worker
from streamway.errors import GenerationNotFound, Internal
from streamway.lanes import LaneReader, TakenTask, request_of, states_of
from streamway.v1 import common_pb2
from streamway.valkey.connection import Valkey

_log = structlog.get_logger("adapter")

_BLOCK_MS: Final = 1000
_LOOK_UP_S: Final = 1.0
_MOST_LOOKED_UP: Final = 1000
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class LaneLoop:
    """Takes tasks while the window has room, and keeps their leases.

    What this worker had pending comes first: at the start, and after every error, since the reply with a task may be what was
    lost. While Valkey is away running generations go on, and what ends meanwhile is acknowledged later.
    """

    def __init__(self, valkey: Valkey, lanes: LaneReader, worker: Worker, books: Books, task_lease_s: float) -> None:
        self._valkey = valkey
        self._lanes = lanes
        self._worker = worker
        self._books = books
        self._task_lease_s = task_lease_s

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take(), name="take")
            group.create_task(self._renew(), name="renew")
            group.create_task(self._look_up(), name="look-up")
            group.create_task(self._books.run(), name="books")

    async def emptied(self) -> bool:
        """True when nothing lies in the lanes and everything is written; also while Valkey does not answer."""
        try:
            return self._books.empty and await self._lanes.length() == 0
        except (RedisError, OSError):
            return True

    async def _take(self) -> None:
        connected, trouble, pause_s = False, False, _FIRST_PAUSE_S
        while True:
            try:
                if not connected:
                    await self._connect()
                    if trouble:
                        _log.info("lanes_reached_again")
                    connected, trouble, pause_s = True, False, _FIRST_PAUSE_S
                if not await self._take_some(await self._worker.room()):
                    await self._lanes.wait(_BLOCK_MS)
            except (RedisError, OSError) as problem:
                if not trouble:
                    _log.warning("lanes_not_reached", problem=type(problem).__name__)
                connected, trouble = False, True
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _connect(self) -> None:
        await self._lanes.open()
        pending = [task for task in await self._lanes.own_pending() if not self._worker.knows(task)]
        if pending:
            _log.info("own_tasks_pending", tasks=len(pending))
            await self._admit(pending)

    async def _take_some(self, most: int) -> bool:
        """Takes at most `most` tasks. False when there were none."""
        granted = self._worker.window.reserve(most)
        try:
            tasks = await self._lanes.take(granted)
            if tasks:
                await self._admit(tasks)
            return bool(tasks)
        finally:
            self._worker.release(granted)

    async def _admit(self, tasks: list[TakenTask]) -> None:
        """Gives tasks to the worker. One whose engine call began in an earlier life is lost: running it again would give its
        readers another text."""
        records = await request_of(self._valkey, [task.copy.generation for task in tasks])
        for task, record in zip(tasks, records, strict=True):
            if self._worker.knows(task):
                continue
            if record is None:
                # Its record has expired, so everybody has stopped waiting, or it is damaged.
                _log.warning("task_without_record", generation=task.copy.generation, lane=task.lane)
                self._worker.refuse(task, GenerationNotFound(task.copy.generation))
                continue
            request, state, created_ms = record
            if state == "queued":
                self._start(request, created_ms / 1000, task)
            elif state == "running":
                self._worker.lose(task)
            else:
                self._books.finish(task)

    def _start(self, request: common_pb2.GenerationRequest, created_unix: float, task: TakenTask) -> None:
        try:
            self._worker.admit(request, created_unix, task)
        except Exception:  # noqa: BLE001 — a task that is read again after a restart must not end the worker each time
            _log.exception("task_not_started", generation=request.generation)
            self._worker.refuse(task, Internal(), request.tenant)

    async def _look_up(self) -> None:
        """Looks for what readers wait for and no task will bring: it ended, or ran, in an earlier life of this worker."""
        while True:
            await asyncio.sleep(_LOOK_UP_S)
            awaited = self._worker.awaited[:_MOST_LOOKED_UP]
            if not awaited:
                continue
            try:
                states = await states_of(self._valkey, awaited)
            except (RedisError, OSError):
                # The loop that takes tasks says so.
                continue
            for generation, state in zip(awaited, states, strict=True):
                # Without a record its router may still be writing it.
                if state not in ("", "queued"):
                    self._worker.lost(generation)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._task_lease_s / 3)
            try:
                await self._lanes.renew(self._worker.tasks)
            except (RedisError, OSError) as problem:
                _log.warning("task_leases_not_renewed", problem=type(problem).__name__)
