"""Tasks with a parent.

`asyncio.create_task` is banned elsewhere: a task that nobody holds can vanish in mid-flight, and its exception with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

import structlog

_log = structlog.get_logger("runtime")


class TaskScope:
    """Owns tasks that may fail one by one, without taking each other down: one per connection, call or generation.

    Leaving the scope cancels what still runs and waits for it. A failure is logged with its traceback, never lost.
    For tasks that must fail together use `asyncio.TaskGroup`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Starts a task. Raises RuntimeError when the scope is closed."""
        if self._closed:
            work.close()
            raise RuntimeError(f"task scope {self._name} is closed")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}/{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancels every task and waits until all have ended."""
        self._closed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task_failed", task=task.get_name(), exc_info=error)
