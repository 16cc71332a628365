"""The subscriptions of one `Attach` stream, and which event goes to which of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from streamway.attach.lines import line_of
from streamway.attach.subscription import AttachSink, Subscription
from streamway.errors import Internal, StreamwayError
from streamway.journal import Merger, Verdict
from streamway.v1 import common_pb2, inference_pb2

_log = structlog.get_logger("attach")

DELIVER: Final = Verdict.DELIVER
DROP: Final = Verdict.DROP


class SubscriptionTable:
    """Subscriptions by their numbers.

    `worker` is only for logs. `left` is told the number of each subscription that ends although the worker would go on with it.
    """

    def __init__(self, worker: str, left: Callable[[int], None]) -> None:
        self._worker = worker
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._subscriptions: dict[int, Subscription] = {}
        self._last_number = 0
        # Subscriptions of each generation, and which of these were cancelled: that is said again on a new stream.
        self._readers: dict[str, int] = {}
        self._cancelled: set[str] = set()
        self.idle_since: float | None = self._loop.time()

    def __len__(self) -> int:
        return len(self._subscriptions)

    def reading(self, most: int) -> list[tuple[str, int]]:
        """Some of the generations that are read as they are made, and the position that each is at."""
        live = (each for each in self._subscriptions.values() if each.view == inference_pb2.VIEW_LIVE)
        return [(each.generation, each.merger.cursor.position) for each in itertools.islice(live, most)]

    def add(
        self, generation: str, merger: Merger, view: inference_pb2.View.ValueType, sink: AttachSink, wait_ms: int
    ) -> tuple[int, Subscription]:
        """A new one, under a number that none has."""
        number = self._last_number
        while True:
            number = number % 0xFFFFFFFF + 1
            if number not in self._subscriptions:
                break
        self._last_number = number
        subscription = self._subscriptions[number] = Subscription(generation, merger, view, sink, wait_ms)
        self._readers[generation] = self._readers.get(generation, 0) + 1
        self.idle_since = None
        return number, subscription

    def remove(self, number: int) -> None:
        """Ends one for which the worker would go on; one that has ended already is ignored."""
        if number in self._subscriptions:
            self._end(number)
            self._left(number)

    def cancel(self, generation: str) -> None:
        """Remembers that this generation was cancelled, for as long as it is read."""
        if generation in self._readers:
            self._cancelled.add(generation)

    def note_idle(self) -> None:
        """The client was used, perhaps without a subscription."""
        if not self._subscriptions:
            self.idle_since = self._loop.time()

    def clear(self) -> list[Subscription]:
        """Ends all; returns what they were."""
        ended = list(self._subscriptions.values())
        self._subscriptions.clear()
        self._readers.clear()
        self._cancelled.clear()
        self.note_idle()
        return ended

    def commands(self) -> list[inference_pb2.AttachCommand]:
        """All that must be said on a new stream."""
        commands = [subscription.command(number) for number, subscription in self._subscriptions.items()]
        for generation in self._cancelled:
            cancel = inference_pb2.CancelGeneration(generation=generation)
            commands.append(inference_pb2.AttachCommand(cancel=cancel))
        return commands

    def take(self, events: Iterable[common_pb2.Event]) -> bool:
        """Gives a batch to its readers, and keeps nothing of it; whether a sink was called."""
        # Per-token path: one lookup and one call an event.
        subscriptions = self._subscriptions
        called = False
        for event in events:
            number = event.subscription
            subscription = subscriptions.get(number)
            if subscription is None:
                continue
            kind = event.WhichOneof("event")
            position = event.position
            if position and subscription.judges:
                if kind == "token":
                    verdict = subscription.receive(event.epoch, event.first_position or position, position)
                elif event.epoch or kind != "error":
                    line = line_of(event, kind or "")
                    verdict = subscription.receive(event.epoch, event.first_position or position, position, line)
                else:
                    verdict = DELIVER
                if verdict is not DELIVER:
                    if verdict is not DROP:
                        called = True
                        self._miss(number, subscription)
                    continue
            if kind != "token" and kind in ("finished", "error"):
                self._end(number)
            called = True
            try:
                subscription.deliver(event, kind or "")
            except Exception:  # noqa: BLE001 — one reader's fault must not end the stream of the others
                _log.exception("sink_failed", worker=self._worker, of=subscription.generation)
                self._drop(number, subscription)
        return called

    def lose(self, error: StreamwayError) -> int:
        """Tells every reader that nothing more will come; how many there were."""
        lost = self.clear()
        for subscription in lost:
            try:
                subscription.sink.lost(error, subscription.merger.cursor.position)
            except Exception:  # noqa: BLE001 — the other readers must be told too
                _log.exception("sink_failed", worker=self._worker, of=subscription.generation)
        return len(lost)

    def _drop(self, number: int, subscription: Subscription) -> None:
        self.remove(number)
        with contextlib.suppress(Exception):
            subscription.sink.lost(Internal(), subscription.merger.cursor.position)

    def _miss(self, number: int, subscription: Subscription) -> None:
        """What comes next for this reader is not here."""
        self.remove(number)
        try:
            subscription.sink.gap()
        except Exception:  # noqa: BLE001 — as above
            _log.exception("sink_failed", worker=self._worker, of=subscription.generation)

    def _end(self, number: int) -> None:
        generation = self._subscriptions.pop(number).generation
        left = self._readers[generation] - 1
        if left:
            self._readers[generation] = left
        else:
            del self._readers[generation]
            self._cancelled.discard(generation)
        self.note_idle()
