"""Where one reader stands, and the steps that change that. `reader` has the API, `arrival` and `journey` the ways."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from streamway.attach import AttachSink
from streamway.errors import GenerationNotFound, StreamwayError
from streamway.following.catching_up import CatchingUp, Found
from streamway.following.ports import Place, ReaderPorts, ReaderSink
from streamway.journal import START, Ahead, Cursor, Following, Merger
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import View


class Standing:
    """One reader's place. Only the reader itself and its ways touch it.

    `turn` grows with each change of direction: whoever finds another one than its own stops. `announcing` is the cursor a
    resume began at, until `resumed` is told. `number` is that of its subscription, 0 for none.
    """

    __slots__ = (
        "ahead",
        "announcing",
        "catching_up",
        "durable",
        "ended",
        "following",
        "generation",
        "merger",
        "news",
        "number",
        "place",
        "ports",
        "quiet_since",
        "shared",
        "sink",
        "stuck_at",
        "subscribed_at",
        "tenant",
        "traceparent",
        "turn",
    )

    def __init__(
        self, ports: ReaderPorts, generation: str, tenant: str, sink: ReaderSink, merger: Merger, *, durable: bool
    ) -> None:
        self.ports = ports
        self.generation = generation
        self.tenant = tenant
        self.sink = sink
        self.merger = merger
        self.catching_up = CatchingUp(generation, merger, sink, ports.after_batch)
        self.following: Following | None = None
        # What it was given and the store did not have then.
        self.ahead: Ahead | None = None
        # Set when there is something new; made by the one who waits for it.
        self.news: asyncio.Event | None = None
        self.number = 0
        self.turn = 0
        self.announcing: Cursor | None = None
        self.stuck_at = merger.cursor
        self.quiet_since = 0.0
        self.subscribed_at = 0.0
        self.durable = durable
        self.place: Place | None = None
        self.ended = False
        # Others read these events too, or they are another's: a router must decide what a cancel comes to.
        self.shared = False
        # Of the request that began it, where that is recorded.
        self.traceparent = ""

    @property
    def cursor(self) -> Cursor:
        """Of the last event the sink got."""
        return self.merger.cursor

    def heard_nothing(self) -> float:
        """For how long nothing new has come, in seconds."""
        now = self.ports.clock()
        if self.stuck_at != self.cursor or not self.quiet_since:
            self.stuck_at, self.quiet_since = self.cursor, now
        return now - self.quiet_since

    def subscribe(self, place: Place, reader: AttachSink) -> None:
        """Reads live there, behind the cursor."""
        self.place = place
        self.subscribed_at = self.ports.clock()
        client = self.ports.pool.client(place.address, place.worker)
        self.number = client.subscribe(self.generation, self.merger, View.VIEW_LIVE, reader)

    def begin_without_channel(self) -> None:
        """Who reads from the beginning begins behind `accepted`: it was told to whoever asked, and only a channel keeps it."""
        if self.merger.cursor == START:
            self.merger.receive(0, 1, 1)

    def redirect(self, generation: str) -> None:
        """Its events are those of another generation."""
        self.generation = generation
        self.catching_up.redirect(generation)

    def announce(self, resumed: common_pb2.Resumed) -> None:
        """Tells what became of the cursor."""
        self.announcing = None
        self.sink.event(common_pb2.Event(resumed=resumed), "resumed")

    def stop(self) -> None:
        """Nothing is read any more."""
        self.turn += 1
        self.tell_news()
        self.unfollow()
        if self.number and self.place is not None:
            self.ports.pool.client(self.place.address, self.place.worker).unsubscribe(self.number)
            self.number = 0

    def tell_news(self) -> None:
        """Whoever waits looks again."""
        if self.news is not None:
            self.news.set()

    def unfollow(self) -> None:
        """The channel's new entries are not wanted."""
        if self.following is not None:
            self.following.close()
            self.following = None

    def end(self) -> None:
        """The terminal event is told, or is about to be."""
        self.turn += 1
        self.unfollow()
        self.ended = True

    def lose(self, error: StreamwayError, found: Found = Found.NOTHING) -> None:
        """Nothing follows, and this is why."""
        if self.announcing is not None and not isinstance(error, GenerationNotFound):
            self.announce(common_pb2.Resumed(recovered=False, behind=found is Found.BEHIND))
        self.end()
        self.sink.lost(error, self.cursor.position)
        self.flush()

    def flush(self) -> None:
        """A group of events is complete."""
        if self.ports.after_batch is not None:
            self.ports.after_batch()

    def spawn(self, journey: Coroutine[Any, Any, None]) -> None:
        """Goes on in a task."""
        self.ports.scope.spawn(journey, "follow")
