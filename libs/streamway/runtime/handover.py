"""From threads to the event loop, in order, with one wake-up for all that has come before the loop looks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Handover(Generic[T]):
    """Gives `deliver` on `loop` what threads put in. A wake-up writes to a socket: one for each token costs more than the token.

    Its bound is that of who puts in: native calls wait for their engine, and the loop takes all there is each time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[T], None]) -> None:
        self._loop, self._deliver = loop, deliver
        self._items: deque[T] = deque()
        self._woken = False

    def put(self, item: T) -> bool:
        """From any thread. False: the loop has closed, and nobody will get it."""
        self._items.append(item)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                return False
        return True

    def _drain(self) -> None:
        # First the flag: what is put in from here on either is seen below, or wakes us again.
        self._woken = False
        while self._items:
            self._deliver(self._items.popleft())
