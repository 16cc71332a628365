"""Deadlines by which others are judged: they count only time in which this process was there to hear the answer.

    asyncio.timeout(2)       ├──────── our loop is busy ─────────┤ over: the answer that lies in the socket is not read any more
    listening(2)             ├─ counts as one part of eight ─────┤ read, then the next part

A loop that is blocked sends late and hears nothing. Whoever takes that for the other's silence blames the healthy.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

# The time is counted in so many parts: a block of any length counts as one of them.
_PARTS: Final = 8
# However busy the loop is, it ends after so many times its length.
_MOST: Final = 10


class listening:  # noqa: N801 — used as `asyncio.timeout` is
    """Like `asyncio.timeout(timeout_s)`, but in seconds in which the loop ran. Raises TimeoutError.

    A part whose end comes late by more than half of it was not listened to: it counts as one part, and is never the last.
    """

    __slots__ = ("_armed", "_handle", "_left", "_loop", "_part_s", "_timeout", "_until")

    def __init__(self, timeout_s: float) -> None:
        self._part_s = timeout_s / _PARTS
        self._left = _PARTS

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + _MOST * _PARTS * self._part_s
        self._timeout = await asyncio.timeout(None).__aenter__()
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _arm(self) -> None:
        self._armed = self._loop.time()
        self._handle = self._loop.call_later(self._part_s, self._passed)

    def _passed(self) -> None:
        now = self._loop.time()
        heard = now - self._armed < 1.5 * self._part_s
        self._left = max(self._left - 1, 0 if heard else 1)
        if self._left and now < self._until:
            self._arm()
        else:
            # In the next turn: what came in this one is still heard.
            self._timeout.reschedule(now)
