"""Room in the window, and who waits for it."""

from __future__ import annotations

import asyncio

from services.inference_adapter.core.window import Window


class Room:
    """What may still be taken: reads of the lanes set room aside before they know what they bring, direct calls may not."""

    def __init__(self, window: Window) -> None:
        self._window = window
        # Set when room may have come free; and who waits for what a read of the lanes has set aside.
        self._freed = asyncio.Event()
        self._callers = 0

    def freed(self) -> None:
        """There may be more."""
        self._freed.set()

    async def wait(self) -> int:
        """Waits until something may be taken from the lanes; returns how much."""
        while (free := self._window.unreserved - self._callers) <= 0:
            self._freed.clear()
            await self._freed.wait()
        return free

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
            self._freed.set()

    def reserve(self, most: int) -> int:
        """Sets room aside; returns how much. Give it back with `release`."""
        return self._window.reserve(most)

    def release(self, granted: int) -> None:
        """Gives it back."""
        self._window.release(granted)
        self._freed.set()
