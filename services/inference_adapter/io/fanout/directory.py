"""Brings readers and generations together, whichever comes first."""

from __future__ import annotations

import asyncio

from services.inference_adapter.core.memory import Gone, Memory
from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.io.fanout.outbox import Outbox
from services.inference_adapter.io.fanout.subscription import Subscription
from streamway.errors import EventsExpired, GenerationNotFound, QueueTimeout, StreamwayError, WorkerLost
from streamway.runtime.clock import Clock


class Directory:
    """Every stream of readers, and who waits for a generation that is not here yet: its task may still be in the lane.

    A stream that brings nothing for `heartbeat_s` gets a sign of life; one with subscriptions after `attach_heartbeat_s`,
    since whoever reads must find out soon that this process was stopped or cut off.
    """

    def __init__(
        self, worker: str, memory: Memory, clock: Clock, heartbeat_s: float, attach_heartbeat_s: float
    ) -> None:
        self._worker = worker
        self._memory = memory
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._attach_heartbeat_s = attach_heartbeat_s
        self._waiting: dict[str, list[Subscription]] = {}
        self._outboxes: set[Outbox] = set()
        self._next_heartbeat = clock.monotonic() + heartbeat_s
        self._next_attach_heartbeat = clock.monotonic() + attach_heartbeat_s
        # Somebody waits who has read of a generation before: it should be looked up at once.
        self.stranger = asyncio.Event()

    @property
    def waiting(self) -> list[str]:
        """Generations that somebody waits for."""
        return list(self._waiting)

    @property
    def idle(self) -> bool:
        """No stream has anything left to send."""
        return all(outbox.idle for outbox in self._outboxes)

    def opened(self, outbox: Outbox) -> None:
        """A stream has begun."""
        self._outboxes.add(outbox)

    def closed(self, outbox: Outbox) -> None:
        """A stream has ended; its readers may come back on another."""
        self._outboxes.discard(outbox)
        for subscription in outbox.subscriptions.values():
            self._stop_waiting(subscription)
        outbox.close()

    def join(self, subscription: Subscription) -> None:
        """Binds a subscription to its generation, has it wait, or ends it with the reason why it can get nothing."""
        found = self._memory.find(subscription.generation)
        if isinstance(found, Transcript):
            self._bind(subscription, found)
        elif found is Gone.EXPIRED:
            subscription.fail(EventsExpired(subscription.generation))
        elif found is Gone.MOVED:
            subscription.fail(EventsExpired(subscription.generation, moved="unknown"))
        elif found is Gone.LOST:
            subscription.fail(WorkerLost(self._worker))
        else:
            self._waiting.setdefault(subscription.generation, []).append(subscription)
            if subscription.after > 1:
                # It has read what another worker made, or an earlier life of this one.
                self.stranger.set()

    def leave(self, outbox: Outbox, number: int) -> None:
        """Ends one subscription at its reader's wish."""
        subscription = outbox.subscriptions.get(number)
        if subscription is not None:
            self._stop_waiting(subscription)
            outbox.remove(number)

    def appeared(self, transcript: Transcript) -> None:
        """A generation has come in; whoever waited for it reads it from now on."""
        for subscription in self._waiting.pop(transcript.generation, ()):
            self._bind(subscription, transcript)

    def seen(self, generation: str) -> int:
        """The last position that anybody has who waits for a generation."""
        return max((each.after for each in self._waiting.get(generation, ())), default=0)

    def will_not_come(self, generation: str, error: StreamwayError) -> None:
        """Ends everybody who waits for a generation."""
        for subscription in self._waiting.pop(generation, ()):
            subscription.fail(error)

    def tick(self) -> None:
        """Ends what has waited for too long, and sends signs of life."""
        now = self._clock.monotonic()
        for generation, waiting in list(self._waiting.items()):
            for subscription in [each for each in waiting if each.wait_until <= now]:
                waiting.remove(subscription)
                subscription.fail(QueueTimeout(subscription.wait_s))
            if not waiting:
                del self._waiting[generation]
        everybody = now >= self._next_heartbeat
        if everybody:
            self._next_heartbeat = now + self._heartbeat_s
        if everybody or now >= self._next_attach_heartbeat:
            self._next_attach_heartbeat = now + self._attach_heartbeat_s
            for outbox in self._outboxes:
                if everybody or outbox.subscriptions:
                    outbox.heartbeat()

    def _bind(self, subscription: Subscription, transcript: Transcript) -> None:
        if subscription.tenant not in (None, transcript.tenant):
            subscription.fail(GenerationNotFound(subscription.generation))
        elif transcript.journaled:
            if subscription.on_line(transcript):
                subscription.bind(transcript)
            else:
                subscription.fail(EventsExpired(subscription.generation))
        elif subscription.after > transcript.position:
            # Its reader has more than this worker ever made of it: that was an earlier life, whose text is another one.
            subscription.fail(WorkerLost(self._worker))
        else:
            subscription.bind(transcript)

    def _stop_waiting(self, subscription: Subscription) -> None:
        waiting = self._waiting.get(subscription.generation)
        if waiting is not None and subscription in waiting:
            waiting.remove(subscription)
            if not waiting:
                del self._waiting[subscription.generation]
