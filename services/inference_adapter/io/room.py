"""Room in the window, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from services.inference_adapter.core.window import Window
from streamway.valkey import keys


class Room:
    """What may still be taken: reads of the lanes set room aside before they know what they bring, direct calls may not."""

    def __init__(self, window: Window) -> None:
        self._window = window
        # Set when room may have come free; and who waits for what a read of the lanes has set aside.
        self._freed = asyncio.Event()
        self._callers = 0
        # Counts what `freed` was told, so that nobody misses it while he is busy.
        self.changes = 0

    def freed(self) -> None:
        """There may be more."""
        self.changes += 1
        self._freed.set()

    async def changed(self, since: int) -> None:
        """Returns when `changes` is another number than `since`."""
        while self.changes == since:
            self._freed.clear()
            await self._freed.wait()

    async def wait(self, *, shared: bool) -> None:
        """Waits until something may be taken from the worker's lanes, or from those it shares with others."""
        while self._callers_first() or not any(self._window.room(class_, shared=shared) for class_ in keys.CLASSES):
            self._freed.clear()
            await self._freed.wait()

    def _callers_first(self) -> bool:
        """What is left is for direct calls that wait for it."""
        return self._callers > 0 and self._window.free > 0 and self._window.unreserved <= self._callers

    async def for_call(self) -> bool:
        """True when a direct call may be admitted now, without another wait in between.

        Room that a read of the lanes has set aside is waited for, a matter of a millisecond: most reads bring nothing.
        """
        self._callers += 1
        try:
            while self._window.free and not self._window.unreserved:
                self._freed.clear()
                await self._freed.wait()
            return self._window.free > 0
        finally:
            self._callers -= 1
            self.freed()

    def reserve(self, classes: Iterable[keys.TaskClass], *, shared: bool) -> dict[keys.TaskClass, int]:
        """Sets aside what there is for each class. Give it back with `release`."""
        return {class_: self._window.reserve(class_, shared=shared) for class_ in classes}

    def release(self, granted: Mapping[keys.TaskClass, int]) -> None:
        """Gives it back."""
        for class_, tasks in granted.items():
            self._window.release(class_, tasks)
        self.freed()
