"""The one way to a thread, for work that would hold up the event loop for longer than a token may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread of its own, which is gone when it has returned.

    Cancelled, the caller goes on at once, and the thread ends by itself: `work` must be short and hold nothing.
    """
    executor = ThreadPoolExecutor(1)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, work)
    finally:
        executor.shutdown(wait=False)
