"""How long one WebSocket is kept, and how it ends: heartbeats, credentials, draining, goodbye. `connection.py` has what is said
on it.

    open ──drain, go_away──► leaving ──nothing runs──► closing ──► gone
      │                        takes nothing new          ▲
      └──────────── too slow ─────────────────────────────┘
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from services.edge.core import ws_frames
from services.edge.core.commands import Live, Name
from services.edge.core.connection_life import Life, Why, beats_until_dead
from services.edge.interfaces import Dialect
from services.edge.io.desk import Generation
from services.edge.io.gate import Caller
from services.edge.io.outbox import Outbox
from streamway.errors import GoingAway, SlowConsumer, StreamwayError, from_status
from streamway.v1 import common_pb2

if TYPE_CHECKING:
    from services.edge.io.websocket import WebSocketSurface

_log = structlog.get_logger("edge")

SURFACE: Final = "websocket"
# How long a client that was told to go may take to read it; so often again while it does read, since much may be left.
LAST_WORDS_S: Final = 2.0
_MORE_LAST_WORDS: Final = 4


class Lifetime:
    """See the module. An `outbox.Pausing` for all of its generations."""

    __slots__ = (
        "_caller",
        "_closing",
        "_first",
        "_leaving",
        "_live",
        "_restorable",
        "_surface",
        "_transport",
        "_unanswered",
        "dialect",
        "life",
        "outbox",
    )

    def __init__(
        self, surface: WebSocketSurface, transport: asyncio.Transport, dialect: Dialect, caller: Caller
    ) -> None:
        self.dialect = dialect
        self._surface = surface
        self._transport = transport
        self._caller = caller
        self._restorable = surface.restores.open(caller.identity.tenant)
        self._live: dict[Name, Generation] = {}
        self._unanswered = 0
        self._first = 0
        self._closing = False
        # Why it ends, once its client was told.
        self._leaving: StreamwayError | None = None
        self.life = Life(surface.life_rules, surface.now())
        self.outbox = Outbox(transport, surface.flusher, SURFACE, self._too_slow, self)

    @property
    def tenant(self) -> str:
        """Whose connection it is."""
        return self._caller.identity.tenant

    @property
    def idle(self) -> bool:
        """Nothing runs on it, and nothing ends it."""
        return not (self._live or self._closing or self._leaving)

    @property
    def held_bytes(self) -> int:
        """What this process holds for it: output that the kernel has not taken, and requests that no router has."""
        return self.outbox.held + sum(generation.placement.held_bytes for generation in self._live.values())

    def beat(self) -> None:
        """A heartbeat for the client and a ping for its protocol. The last of those that may be missed in a row has a moment
        to be answered; then the client counts as gone. Its credentials are looked at in passing."""
        if self._closing:
            return
        settings = self._surface.settings
        self._unanswered += 1
        self.outbox.put(self.dialect.heartbeat + ws_frames.PING)
        if self._unanswered >= self._most_unanswered:
            asyncio.get_running_loop().call_later(settings.heartbeat_answer_s, self._dead_if_silent)
        try:
            self._caller.standing.check()
        except StreamwayError as lost:
            self.drain(Why.CREDENTIALS, lost)

    def drain(self, why: Why, error: StreamwayError) -> None:
        """This connection ends, and the process goes on. The client is told where it stands; what runs has
        `connection_drain_s`, and what can be resumed goes on elsewhere then. What cannot may end first, unless `why` forbids."""
        if self._leaving or self._closing:
            return
        self._surface.metrics.drained.labels(why).inc()
        _log.info("connection_drained", why=why, generations=len(self._live), requests=self.life.requests)
        self.go_away(error)
        if self._live:
            all_of_them = why in (Why.GROWTH, Why.CREDENTIALS)
            delay_s = self._surface.settings.connection_drain_s
            asyncio.get_running_loop().call_later(delay_s, self._drained, all_of_them)

    def go_away(self, error: StreamwayError) -> None:
        """It ends, or the process does: says so, and closes when nothing runs."""
        self._leaving = error
        live = [
            Live(name, generation.id, generation.cursor)
            for name, generation in self._live.items()
            if generation.durable and generation.grace
        ]
        self.outbox.put(self.dialect.going_away(error, live))
        self._close_if_idle()

    def say_goodbye(self, code: int, reason: str) -> None:
        """Closes with a code. The client has two seconds to read what is left, up to ten while it reads."""
        if self._closing:
            return
        self._closing = True
        self.outbox.put(ws_frames.close_frame(code, reason))
        self.outbox.flush()
        self.outbox.close()
        self._leave_all()
        # Its own close frame ends the connection. Closing it from here could reset it before ours is read.
        self._wait_for_reader(_MORE_LAST_WORDS)

    def gone(self) -> None:
        """The connection has ended: nothing of it stays."""
        if self._live and not self._closing:
            self._surface.metrics.abnormal_closes += 1
        self._closing = True
        self.outbox.close()
        self._leave_all()

    def ended(self, name: Name) -> None:
        """A generation has ended; its name is free again."""
        self._live.pop(name, None)
        if self._leaving:
            self._close_if_idle()
        elif self.life.worn_out:
            self.drain(Why.REQUESTS, GoingAway("edge", "it has carried as many requests as one may"))

    def goes_on_elsewhere(self, name: Name, event: common_pb2.Event) -> bool:
        """Whether an error says only that this edge stops, and the generation does not."""
        generation = self._live.get(name)
        resumable = generation is not None and generation.durable and generation.grace
        return resumable and not event.position and isinstance(from_status(event.error.status), GoingAway)

    def pause(self) -> bool:
        """The client reads too slowly: what has a channel waits there."""
        waiting = [generation.pause() for generation in list(self._live.values())]
        return all(waiting)

    def go_on(self) -> None:
        """The client reads again."""
        generations = list(self._live.values())
        # Another one is first each time: none may starve where all together are more than the client reads.
        self._first = (self._first + 1) % max(1, len(generations))
        for generation in generations[self._first :] + generations[: self._first]:
            generation.go_on()

    def check(self) -> None:
        """Raises why nothing new may be asked for on it."""
        if self._surface.desk.draining:
            raise GoingAway("edge")
        if self._leaving:
            raise self._leaving.with_traceback(None)
        self._caller.standing.check()

    def _too_slow(self, error: SlowConsumer) -> None:
        _log.warning("slow_consumer", surface=SURFACE, problem=error.message, generations=len(self._live))
        self.say_goodbye(error.row.close, error.message)

    def _dead_if_silent(self) -> None:
        if self._closing or self._unanswered < self._most_unanswered:
            return
        _log.info("client_dead", generations=len(self._live))
        if self._live:
            self._surface.metrics.abnormal_closes += 1
        self._closing = True
        self._transport.abort()

    @property
    def _most_unanswered(self) -> int:
        settings = self._surface.settings
        return beats_until_dead(settings.missed_heartbeats, settings.heartbeat_s, settings.silent_s)

    def _drained(self, all_of_them: bool) -> None:
        """The time is over for what goes on elsewhere, or for `all_of_them`."""
        if self._closing:
            return
        for generation in list(self._live.values()):
            if all_of_them or (generation.durable and generation.grace):
                generation.detach(GoingAway("edge", "its time to drain is over"))

    def _wait_for_reader(self, more: int) -> None:
        left = self._transport.get_write_buffer_size()
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self._cut_unless_read, left, more)

    def _cut_unless_read(self, left: int, more: int) -> None:
        """Whoever has read a part meanwhile is given time for the rest."""
        if more and self._transport.get_write_buffer_size() < left:
            self._wait_for_reader(more - 1)
        else:
            self._transport.abort()

    def _close_if_idle(self) -> None:
        if not self._live and self._leaving:
            self.say_goodbye(self._leaving.row.close, self._leaving.message)

    def _leave_all(self) -> None:
        self._restorable.close()
        live, self._live = self._live, {}
        for generation in live.values():
            generation.leave()
