"""Events that wait to be sent on one call."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from streamway.errors import SlowConsumer, StreamwayError
from streamway.runtime.spacing import Spacing
from streamway.v1 import common_pb2, router_pb2

_MOST_EVENTS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
_MOST_ANSWERS: Final = 1000


class Outbox:
    """Filled without waiting, emptied in batches by one reader.

    When more than `limit_bytes` wait, all of it is dropped, `overflowed` is called at once, and the reader gets SlowConsumer
    when it asks again: as long as its last batch cannot be sent, it does not. Batches go out at least as far apart as `gather_s`
    says (see `streamway.runtime.spacing`).
    """

    def __init__(self, limit_bytes: int, gather_s: float = 0.0) -> None:
        self._limit_bytes = limit_bytes
        self._spacing = Spacing(gather_s)
        self.overflowed: Callable[[], None] = _nothing
        self._events: deque[tuple[common_pb2.Event, int]] = deque()
        self._bytes = 0
        # Bounded by the questions that may wait.
        self._answers: deque[router_pb2.Located] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._error: StreamwayError | None = None

    def put(self, events: Iterable[common_pb2.Event]) -> None:
        """Adds events, in order. After the end they are dropped."""
        if self._ended:
            return
        for event in events:
            size = event.ByteSize()
            self._events.append((event, size))
            self._bytes += size
        # A single event larger than the limit must still be possible to send.
        if self._bytes > self._limit_bytes and len(self._events) > 1:
            self.end(SlowConsumer(self._bytes, self._limit_bytes))
            self._events.clear()
            self._bytes = 0
            self.overflowed()
        self._wake.set()

    def answer(self, located: router_pb2.Located) -> None:
        """Adds the answer to a question. After the end it is dropped."""
        if not self._ended:
            self._answers.append(located)
            self._wake.set()

    def answers(self) -> list[router_pb2.Located]:
        """Answers to go with the batch that was just taken."""
        return [self._answers.popleft() for _ in range(min(_MOST_ANSWERS, len(self._answers)))]

    def end(self, error: StreamwayError | None = None) -> None:
        """Nothing follows what waits now."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake.set()

    async def take(self, idle_s: float | None = None) -> list[common_pb2.Event] | None:
        """The next batch; an empty one after `idle_s` without any, or where only `answers` wait; None at the end.

        Raises the error of the end.
        """
        if not self._events and not self._answers and not self._ended:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(idle_s):
                    await self._wake.wait()
        if self._events or self._answers:
            await self._spacing.turn()
        batch: list[common_pb2.Event] = []
        taken = 0
        while self._events and len(batch) < _MOST_EVENTS and taken < _MOST_BYTES:
            event, size = self._events.popleft()
            taken += size
            batch.append(event)
        self._bytes -= taken
        if batch or self._answers or not self._ended:
            return batch
        if self._error is not None:
            raise self._error
        return None


def _nothing() -> None:
    pass
