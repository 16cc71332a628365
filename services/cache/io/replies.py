"""Replies of one `Exchange` stream, in the order they are there."""

from __future__ import annotations

import asyncio
from collections import deque

from streamway.v1 import cache_pb2


class Replies:
    """Filled by who reads the calls and by the tasks that look longer; taken by who writes the stream.

    `asked` counts calls whose reply is to come, so that the stream ends after the last of them.
    """

    def __init__(self) -> None:
        self._ready: deque[cache_pb2.ExchangeReply] = deque()
        self._changed = asyncio.Event()
        self._open = 0
        self._ended = False
        self._problem: BaseException | None = None

    def asked(self, calls: int) -> None:
        """So many replies more will come."""
        self._open += calls

    def add(self, reply: cache_pb2.ExchangeReply) -> None:
        """One of them."""
        self._open -= 1
        self._ready.append(reply)
        self._changed.set()

    def end(self, problem: BaseException | None = None) -> None:
        """Nothing more is asked; `problem`: the stream fails at once."""
        self._ended, self._problem = True, problem
        self._changed.set()

    async def take(self, most: int) -> list[cache_pb2.ExchangeReply]:
        """What is ready, at most so many; empty when the stream is at its end. Raises what it ended with."""
        while not self._ready:
            if self._problem is not None:
                raise self._problem
            if self._ended and not self._open:
                return []
            self._changed.clear()
            await self._changed.wait()
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]
