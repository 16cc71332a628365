"""Pauses between tries: each twice as long as the one before, up to a longest; short again once something went well."""

from __future__ import annotations

import asyncio


class Pauses:
    """Of one thing that is tried again and again."""

    __slots__ = ("_first_s", "_longest_s", "next_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.next_s = first_s

    def went_well(self) -> None:
        """The next pause is the first one again."""
        self.next_s = self._first_s

    async def wait(self) -> None:
        """The next pause."""
        pause_s, self.next_s = self.next_s, min(self.next_s * 2, self._longest_s)
        await asyncio.sleep(pause_s)
