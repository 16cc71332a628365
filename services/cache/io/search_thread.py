"""The one thread that searches, and changes what is searched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class SearchThread:
    """FAISS lets nobody search an index that is being added to: both happen here, one after the other, in the order they came."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="search")

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work`, which must be short: others wait behind it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Lets the thread end; what runs in it is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)
