"""Threads for native calls that last as long as an answer does, and give up the interpreter's lock while they wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable


class Crew:
    """Up to `size` threads that take work in turn. Each is started when it is first needed.

    They are daemons: one that native code does not let go must not keep the process from ending.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def take(self, work: Callable[[], None]) -> None:
        """Has a thread do it, after what was given before. `work` must not raise. More than `size` at a time wait."""
        if len(self._threads) < self._size:
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def end(self, limit_s: float) -> bool:
        """Lets them go when they have done what they were given; blocks. False: some are still at it after `limit_s`."""
        for _ in self._threads:
            self._work.put(None)
        until = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
