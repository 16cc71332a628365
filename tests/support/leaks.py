"""No task outlives its test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest


@asynccontextmanager
async def no_new_tasks() -> AsyncIterator[None]:
    """Fails when a task that was begun inside still runs five seconds after everything was closed."""
    before = asyncio.all_tasks()
    yield
    until = asyncio.get_running_loop().time() + 5
    while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
        if asyncio.get_running_loop().time() > until:
            pytest.fail(f"tasks outlived the test: {sorted(map(_told, left))}")
        await asyncio.sleep(0.01)


def _told(task: asyncio.Task[object]) -> str:
    return f"{task.get_name()} in {getattr(task.get_coro(), '__qualname__', task.get_coro())}"
