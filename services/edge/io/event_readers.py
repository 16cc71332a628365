"""What reads a generation for `/v1/generations/{id}/events`: as server-sent events, and for one long poll.

    id: 1048576-3                       the cursor, which comes back as Last-Event-ID
    data: {"type":"token", … }          the same object as on the WebSocket; `id` in it is the generation

An event that makes two objects has its cursor on the second: whoever got only the first reads both again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from services.edge.core.commands import Live
from services.edge.core.openai_chunks import PING
from services.edge.core.ws_frames import GenerationJson, going_away_object
from services.edge.io.chat_readers import settle
from services.edge.io.outbox import Outbox, Pausing
from streamway.errors import GoingAway, PermissionDenied, StreamwayError, Unauthenticated, from_status
from streamway.journal.cursor import START, Cursor
from streamway.v1 import common_pb2

_OVER: Final = ("finished", "error")
# What ends this reading and not the generation: the edge stops, or the client may not read any more.
_READING_ENDS: Final = (GoingAway, Unauthenticated, PermissionDenied)
_FOLLOWS_S: Final = 0.02


class _JsonReader:
    """Events as JSON objects, with the cursor behind the last one."""

    def __init__(self, generation: str, after: Cursor) -> None:
        self.id = generation
        self._at: tuple[int, int] = after
        self.began = False
        # The client had the end before. One whose cursor lies beyond it had something else, and is told so.
        self.nothing_new = False
        self._behind = False
        self.failed: StreamwayError | None = None
        self._json = GenerationJson(generation)

    @property
    def cursor(self) -> Cursor:
        """Of the last event."""
        return Cursor(*self._at)

    def objects(self, event: common_pb2.Event, kind: str) -> list[bytes]:
        """The objects of one event. Per-token path."""
        if kind == "token":
            self._at = (event.epoch, event.position)
            token = event.token
            if token.HasField("choice_finished"):
                return self._json.last_piece(event, token)
            return [self._json.piece(event, token)]
        if event.position:
            if kind in _OVER and self._at[1] >= event.position:
                self.nothing_new = not self._behind
            self._at = (event.epoch, event.position)
        elif kind == "resumed":
            self._behind = event.resumed.behind
            self._at = Cursor.parse(event.resumed.after) if event.resumed.after else START
        elif kind == "diverged":
            self._at = Cursor.parse(event.diverged.at)
        elif kind == "error":
            problem = from_status(event.error.status)
            if isinstance(problem, GoingAway) or (self.began and isinstance(problem, _READING_ENDS)):
                return [going_away_object(problem, [Live(self.id, self.id, self.cursor)])]
            if not self.began:
                # Nothing was said yet, so this can be the status of the response.
                self.failed = problem
                return []
        self.began = True
        body = self._json.other(event, kind)
        return [body] if body else []


class EventStreamReader(_JsonReader):
    """Writes a generation as server-sent events. Until `send_to` what comes is kept, up to `most_bytes`; then `pausing` waits."""

    def __init__(self, generation: str, after: Cursor, most_bytes: int) -> None:
        super().__init__(generation, after)
        loop = asyncio.get_running_loop()
        self.pausing: Pausing | None = None
        self._outbox: Outbox | None = None
        self._held: list[bytes] = []
        self._room = most_bytes
        self._put = self._hold
        self._first: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    async def begun(self, most_s: float) -> None:
        """Returns when something has come, or after `most_s`. Raises an error that came first."""
        # A timer and no `asyncio.wait`, which costs three times as much: a thousand may come back at once.
        timer = asyncio.get_running_loop().call_later(most_s, settle, self._first)
        try:
            await self._first
        finally:
            timer.cancel()
        if self.failed is not None:
            raise self.failed

    def send_to(self, outbox: Outbox) -> None:
        """From now on events are written, first those that were kept."""
        self._outbox = outbox
        held, self._held = self._held, []
        self._put = outbox.put
        for data in held:
            outbox.put(data)
        outbox.flush()
        if self._room < 0 and self.pausing is not None and not outbox.paused:
            self.pausing.go_on()

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. Per-token path."""
        bodies = self.objects(event, kind)
        if bodies:
            data = b"id: %d-%d\ndata: %b\n\n" % (*self._at, bodies[-1])
            if len(bodies) > 1:
                data = b"data: %b\n\n" % bodies[0] + data
            self._put(data)
        if kind == "token":
            if self._outbox is None:
                settle(self._first)
        elif kind == "resumed":
            # The end, for a client that had it already, follows at once.
            asyncio.get_running_loop().call_later(_FOLLOWS_S, settle, self._first)
        else:
            settle(self._first)
        if kind in _OVER:
            settle(self.done)

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._room -= len(data)
        if self._room < 0 and self.pausing is not None:
            self.pausing.pause()

    def beat(self) -> None:
        """A comment, which clients skip and which keeps proxies from cutting the stream."""
        if self._outbox is not None and not self.done.done():
            self._outbox.put(PING)


class PollReader(_JsonReader):
    """Collects events for one answer, up to `most_bytes`."""

    def __init__(self, generation: str, after: Cursor, most_bytes: int) -> None:
        super().__init__(generation, after)
        loop = asyncio.get_running_loop()
        self._bodies: list[bytes] = []
        self._room = most_bytes
        self.done = False
        self.some: asyncio.Future[None] = loop.create_future()
        self.full: asyncio.Future[None] = loop.create_future()

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event; what comes when it is full is the next poll's."""
        if self.full.done():
            return
        bodies = self.objects(event, kind)
        if kind == "resumed" and event.resumed.recovered:
            return
        self._bodies += bodies
        self._room -= sum(map(len, bodies))
        if not self.some.done():
            self.some.set_result(None)
        if kind in _OVER:
            self.done = self.began and (
                kind == "finished" or not isinstance(from_status(event.error.status), _READING_ENDS)
            )
        if kind in _OVER or self._room <= 0:
            self.full.set_result(None)

    async def collect(self, wait_s: float, linger_s: float) -> None:
        """Waits for something, then a moment for what comes with it. Raises an error that came first."""
        await asyncio.wait({self.some}, timeout=wait_s)
        if self.some.done() and not self.full.done():
            await asyncio.wait({self.full}, timeout=linger_s)
        if self.failed is not None:
            raise self.failed

    def body(self) -> bytes:
        """The answer."""
        return b'{"events":[%b],"cursor":"%b","done":%b}' % (
            b",".join(self._bodies),
            str(self.cursor).encode(),
            b"true" if self.done else b"false",
        )
