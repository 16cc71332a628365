"""What waits for the reader of one stream.

Nothing is copied per reader: a subscription is a place in a transcript, and a batch is made from there when the stream can
take one. So a reader that is slow costs its place, until what waits for it is more than the limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from services.inference_adapter.core.wire import head
from streamway.errors import SlowConsumer

if TYPE_CHECKING:
    from services.inference_adapter.io.fanout.subscription import Subscription

BATCH_EVENTS: Final = 1000
BATCH_BYTES: Final = 1024 * 1024


class Outbox:
    """The subscriptions of one stream, and which of them have something to send.

    Batches hold at most 1,000 events and 1 MiB, unless one event alone is larger. Subscriptions take turns when more waits.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.subscriptions: dict[int, Subscription] = {}
        # Why the stream must end, once it must.
        self.error: Exception | None = None
        # The reader has said all it wanted to say.
        self.closing = False
        # Something was put out since the last `quiet`.
        self.active = False
        self._limit_bytes = limit_bytes
        self._waiting_bytes = 0
        self._ready: deque[Subscription] = deque()
        self._wake = asyncio.Event()
        self._heartbeat = False

    @property
    def idle(self) -> bool:
        """Everything there was has been handed to the stream."""
        return not self._ready

    def add(self, subscription: Subscription) -> None:
        """Takes a subscription on."""
        self.subscriptions[subscription.number] = subscription

    def remove(self, number: int) -> None:
        """Stops one subscription; what it had to send is dropped."""
        subscription = self.subscriptions.pop(number, None)
        if subscription is None:
            return
        subscription.leave()
        self._release(subscription)
        if subscription.ready:
            subscription.ready = False
            self._ready.remove(subscription)
        self._wake.set()

    def mark(self, subscription: Subscription, added_bytes: int) -> None:
        """`subscription` has something to send, `added_bytes` of it new. Past the limit all subscriptions are dropped.

        What a reader asks for again is not counted: the memory holds it anyway.
        """
        if not subscription.ready:
            subscription.ready = True
            self._ready.append(subscription)
            self._wake.set()
        subscription.waiting_bytes += added_bytes
        self._waiting_bytes += added_bytes
        if self._waiting_bytes > self._limit_bytes and self._waiting_bytes > added_bytes:
            self.end(SlowConsumer(self._waiting_bytes, self._limit_bytes))

    def end(self, error: Exception) -> None:
        """Drops everything; the stream ends with `error` as soon as its writer runs again."""
        if self.error is None:
            self.error = error
        self.close()

    def close(self) -> None:
        """Drops every subscription."""
        for subscription in list(self.subscriptions.values()):
            subscription.leave()
        self.subscriptions.clear()
        self._ready.clear()
        self._waiting_bytes = 0
        self._wake.set()

    def no_more_commands(self) -> None:
        """The stream ends with its last subscription."""
        self.closing = True
        self._wake.set()

    def heartbeat(self) -> None:
        """Sends a sign of life unless something was sent since the last call."""
        if not self.active and not self._ready:
            self._heartbeat = True
            self._wake.set()
        self.active = False

    async def wait(self) -> bool:
        """Waits until there is something to send. False when nothing will come any more. Raises what `end` was given."""
        while True:
            if self.error is not None:
                raise self.error
            if self._ready or self._heartbeat:
                return True
            if self.closing and not self.subscriptions:
                return False
            self._wake.clear()
            await self._wake.wait()

    def batch(self) -> bytes:
        """The next batch, a serialised response (see `core/wire`); empty for a sign of life. Per-token path."""
        self._heartbeat = False
        self.active = True
        parts: list[bytes] = []
        append = parts.append
        room_events, room_bytes = BATCH_EVENTS, BATCH_BYTES
        ready = self._ready
        while ready and room_events > 0:
            subscription = ready[0]
            transcript = subscription.transcript
            if subscription.index < transcript.base:
                ready.popleft()
                subscription.ready = False
                self._release(subscription)
                subscription.trimmed()
                continue
            stamp = subscription.stamp
            stamp_bytes = len(stamp)
            kept = transcript.events
            first = at = subscription.index - transcript.base
            end = len(kept)
            sent_bytes = 0
            while at < end:
                event = kept[at]
                size = len(event) + stamp_bytes
                if room_events <= 0 or (size > room_bytes and room_bytes < BATCH_BYTES):
                    break
                append(head(size) + stamp)
                append(event)
                room_events -= 1
                room_bytes -= size
                sent_bytes += size
                at += 1
            if at > first:
                subscription.index = at + transcript.base
                subscription.after = transcript.positions[at - 1]
            ready.popleft()
            if at < end:
                ready.append(subscription)
                self._release(subscription, sent_bytes)
                break
            subscription.ready = False
            self._waiting_bytes -= subscription.waiting_bytes
            subscription.waiting_bytes = 0
            if transcript.ended_at is not None:
                subscription.leave()
                self.subscriptions.pop(subscription.number, None)
        return b"".join(parts)

    def _release(self, subscription: Subscription, sent_bytes: int | None = None) -> None:
        waiting = subscription.waiting_bytes
        released = waiting if sent_bytes is None else min(waiting, sent_bytes)
        subscription.waiting_bytes -= released
        self._waiting_bytes -= released
