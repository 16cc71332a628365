"""What reads a generation for the Responses API."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Final

from services.edge.core import rate_limits
from services.edge.core.responses_events import PING, ResponseEvents
from services.edge.core.responses_state import ResponseState
from services.edge.io.outbox import Outbox
from streamway import cachestatus
from streamway.errors import EventsExpired, StreamwayError, from_status
from streamway.v1 import common_pb2

# Encodes nothing: no number is above it.
NOTHING: Final = sys.maxsize


class ResponseReader:
    """Collects one response, and writes it as server-sent events while it has an outbox.

    `ended` is called once, when the response itself has ended; not where only this reading did.
    """

    def __init__(self, state: ResponseState, after: int, ended: Callable[[ResponseState], None]) -> None:
        loop = asyncio.get_running_loop()
        self._events = ResponseEvents(state, after)
        self._ended = ended
        self._outbox: Outbox | None = None
        self._held: list[bytes] = []
        self._position: int | None = None
        self.failed: StreamwayError | None = None
        self._told = common_pb2.Accepted()
        self.rate_limits: dict[str, str] = {}
        # The mesh has it; there is a first piece of the answer.
        self.accepted: asyncio.Future[None] = loop.create_future()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.reached: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    @property
    def state(self) -> ResponseState:
        """What there is so far."""
        return self._events.state

    @property
    def told(self) -> common_pb2.Accepted:
        """What is known now of who answers; empty before `accepted`."""
        if self.state.spoken:
            cachestatus.spoken(self._told)
        return self._told

    async def status(self, hold_s: float, most_s: float, *, resumed: bool) -> None:
        """Returns when a stream's status is known to be 200, or must be said: `hold_s` after the mesh took the request, `most_s`
        after it was asked. Raises an error that came first. `resumed`: a response that ended badly is told as a stream."""
        await asyncio.wait({self.accepted}, timeout=most_s)
        if self.accepted.done() and not self.state.ended:
            await asyncio.wait({self.begun}, timeout=min(hold_s, most_s))
        if self.failed is not None and not (self.state.ended and (resumed or self.state.spoken)):
            raise self.failed

    def reach(self, position: int) -> None:
        """`reached` is done once everything up to this position has come."""
        self._position = position
        if self.state.position >= position:
            _settle(self.reached)

    def send_to(self, outbox: Outbox) -> None:
        """From now on events are written, first those that were made already."""
        self._outbox = outbox
        for data in self._held:
            outbox.put(data)
        self._held.clear()

    def read_on_quietly(self) -> None:
        """The client is gone; the response is collected nevertheless."""
        self._outbox = None
        self._held.clear()
        self._events.mute()

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. Per-token path."""
        if kind == "token":
            data = self._events.event(event, kind)
            if data:
                self._put(data)
            if self._position is not None and event.position >= self._position:
                _settle(self.reached)
            return
        if kind == "resumed":
            if not event.resumed.recovered:
                self._give_up(EventsExpired(self.state.generation))
        elif kind == "diverged":
            # Only a store that lost data does this: what was sent cannot be taken back, the next reading is right.
            self._give_up(EventsExpired(self.state.generation))
        elif not self.done.done():
            self._other(event, kind)

    def beat(self) -> None:
        """A comment, which clients skip and which keeps proxies from cutting the stream."""
        if self._outbox is not None and not self.done.done():
            self._outbox.put(PING)

    def _other(self, event: common_pb2.Event, kind: str) -> None:
        if kind == "error" and not self.accepted.done():
            # Refused: a client that has no stream yet gets a status.
            self.failed = from_status(event.error.status)
            self._finish()
            return
        if kind == "accepted":
            self._told.CopyFrom(event.accepted)
            self.rate_limits = rate_limits.of_accepted(event.accepted)
        elif kind == "started":
            cachestatus.begun(self._told, event.started)
        self._put(self._events.event(event, kind))
        if kind == "accepted":
            _settle(self.accepted)
        elif kind in ("finished", "error"):
            if kind == "error":
                self.failed = from_status(event.error.status)
            if self.state.ended:
                self._ended(self.state)
            self._finish()
        if self._position is not None and self.state.position >= self._position:
            _settle(self.reached)

    def _give_up(self, error: StreamwayError) -> None:
        if self.done.done():
            return
        self.failed = error
        if self.accepted.done():
            self._put(self._events.broken(error))
        self._finish()

    def _put(self, data: bytes) -> None:
        if self._outbox is not None:
            self._outbox.put(data)
        elif data:
            self._held.append(data)
            if self.state.spoken:
                _settle(self.begun)

    def _finish(self) -> None:
        for future in (self.accepted, self.begun, self.reached, self.done):
            _settle(future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
