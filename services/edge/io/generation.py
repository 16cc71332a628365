"""One generation that a client of this edge reads.

    opened     waiting ──► at a router ──► `accepted` ──► read at its worker ──► ended
                  ▲  no router   │ router gone before `accepted`
                  └──────────────┘ (the same id at the next router)
    resumed    ──────────────────────────► read from its channel, then at its worker ──► ended

`accepted`, refusals and answers from the cache come from the router; everything else through a `GenerationReader`, which
follows the generation over channel and workers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from services.edge.core import hop_facts
from services.edge.interfaces import Reader
from services.edge.io.facts import GenerationFacts
from services.edge.io.placement import Placement
from services.edge.io.router_link import RouterLink
from services.edge.io.touching import touch
from streamway.errors import (
    Cancelled,
    DeadlineExceeded,
    EventsExpired,
    RouterUnavailable,
    StreamwayError,
    from_status,
    to_status,
)
from streamway.following import GenerationReader, Place
from streamway.journal.cursor import START, Cursor
from streamway.telemetry.hops import Hop
from streamway.v1 import common_pb2

if TYPE_CHECKING:
    from services.edge.io.desk import Desk

# The mesh gets this long beyond a deadline to say itself how the generation ended.
_DEADLINE_MARGIN_S: Final = 0.25
_OFF: Final = frozenset({common_pb2.DURABILITY_UNSPECIFIED, common_pb2.DURABILITY_OFF})


class Generation(GenerationFacts):
    """See the module."""

    __slots__ = (
        "__weakref__",
        "_alone",
        "_cancelled",
        "_clock_timer",
        "_desk",
        "_follows",
        "_held",
        "_hop",
        "_known",
        "_last",
        "_opened",
        "_reader",
        "_shared",
        "_source",
        "_tokens",
        "placement",
    )

    def __init__(self, desk: Desk, id_: str, tenant: str, reader: Reader, surface: str, hop: Hop) -> None:
        super().__init__(id_, tenant, surface)
        self._desk = desk
        self._hop = hop
        self.placement = Placement(desk.room)
        self._reader = reader
        self._source: GenerationReader | None = None
        # Of the last event from the router, and, once it has ended, of its last event.
        self._last = START
        # A resumed one is known once it is sure that it is its tenant's.
        self._known = True
        self._cancelled = False
        # The generation whose events it reads; its own request and `started`, kept until that one's first token.
        self._follows = ""
        self._alone: common_pb2.GenerationRequest | None = None
        self._held: common_pb2.Event | None = None
        # A cancel must go through a router.
        self._shared = False
        self._tokens = desk.metrics.tokens
        self._opened = 0.0
        self._clock_timer: asyncio.TimerHandle | None = None

    def begin(self, request: common_pb2.GenerationRequest, size_bytes: int, now_unix_s: float) -> None:
        """It is a new one."""
        self.placement.hold(request, size_bytes)
        self.session = request.session
        self.grace = request.on_disconnect != common_pb2.ON_DISCONNECT_CANCEL
        self._opened = self._desk.loop.time()
        if request.deadline_unix_ms:
            delay_s = request.deadline_unix_ms / 1000 - now_unix_s + _DEADLINE_MARGIN_S
            self._clock_timer = self._desk.loop.call_later(max(0.0, delay_s), self._expire)

    def resume(self, cursor: Cursor) -> None:
        """It exists, and is read from a cursor on."""
        self._known = False
        self._source = GenerationReader(self._desk.ports, self.id, self.tenant, self, cursor=cursor)
        self._source.resume()

    @property
    def cursor(self) -> Cursor:
        """Of the last event its reader got."""
        return self._source.cursor if self._source is not None else self._last

    @property
    def position(self) -> int:
        """Of the last event its reader got."""
        return self.cursor.position

    @property
    def waiting(self) -> bool:
        """No router has it."""
        return self.placement.waiting and not self.ended

    # --- What the client wants

    def cancel(self) -> None:
        """The client wants it to stop. The terminal event still comes; at once when nobody has it yet."""
        if self.ended:
            return
        if self.waiting:
            self._cancelled = True
            self.fail(Cancelled())
        else:
            self._stop()
            if self._shared or (self._source is not None and self._source.shared):
                # What is read goes on for others.
                self.fail(Cancelled())

    def leave(self) -> None:
        """The client is gone: nothing is read any more. Without grace the generation is cancelled wherever it is."""
        if self.ended:
            return
        if not self.grace:
            self._stop()
        self._end("left")

    def dismiss(self, error: StreamwayError) -> None:
        """Its client may not read it any more, and is told why. What becomes of it is as if that had left."""
        if self.ended:
            return
        if not self.grace:
            self._stop()
        self.fail(error)

    def pause(self) -> bool:
        """The client reads too slowly: nothing more until `go_on`, which reads what it missed from the channel.

        False: it has no channel, and must be read as it comes.
        """
        if self.ended or self.paused or self.placement.request is not None:
            return True
        if self._known and not self.durable:
            return False
        self.paused = True
        self._hop.mark("paused")
        self._channel_reader().pause()
        self._desk.metrics.pauses += 1
        return True

    def go_on(self) -> None:
        """The client reads again."""
        if not self.paused or self.ended:
            return
        self.paused = False
        self._hop.mark("read_on")
        if self._known:
            self._channel_reader().go_on()
        else:
            self._channel_reader().resume()

    async def touch(self) -> None:
        """A sign of life of a client for which it is paused: a worker ends what nobody reads for longer than its grace."""
        if self.paused and not self.ended and self._source is not None:
            await touch(self._desk.ports, self._follows or self.id, self.tenant, self._source)

    def detach(self, error: StreamwayError) -> None:
        """This edge stops. Where it can be resumed elsewhere it goes on without a reader; the others are cancelled."""
        if not self.ended and not (self.grace and self.durable):
            self.cancel()
        self.fail(error)

    # --- What the routers say

    def routed(self, link: RouterLink, event: common_pb2.Event, kind: str) -> None:
        """An event from the router."""
        if self.ended or not self.placement.at(link) or self._source is not None:
            return
        if kind == "error" and not (self._last.position or self._cancelled) and self.placement.moves_after(event):
            link.leaving = True
            self._hop.mark("router_leaving")
            self.placement.leave()
            self._desk.place_again(self)
            return
        if event.position:
            self._last = Cursor(0, event.position)
        if kind == "accepted":
            # Its reader was told when it joined another one, which has failed since.
            again = bool(self._follows)
            self._accepted(event.accepted)
            event.generation = self.id
            if self.ended or again:
                return
        self.event(event, kind)
        if kind == "accepted" and not self.follow and not self.ended:
            self.leave()

    def unrouted(self, link: RouterLink) -> None:
        """The router is gone before it had said where this runs, or in the middle of an answer from the cache."""
        if self.ended or not self.placement.at(link) or self._source is not None:
            return
        self.placement.leave()
        if self._last.position and self.durable:
            self._channel_reader().go_on()
        elif self._cancelled:
            self.fail(Cancelled())
        elif self._last.position or self.placement.exhausted:
            self.fail(RouterUnavailable())
        else:
            self._hop.mark("router_lost")
            self._desk.place_again(self)

    def _accepted(self, accepted: common_pb2.Accepted) -> None:
        self._shared = accepted.shared
        self._hop.mark("accepted")
        self._hop.tell(hop_facts.of_accepted(accepted))
        if accepted.follows:
            self._alone = self.placement.request
        self._follows = accepted.follows
        self.placement.request = None
        self.durable = accepted.durability not in _OFF
        if accepted.attached_to and accepted.attached_to != self.id:
            # Its events are those of an earlier generation, which has them from its own `accepted` on.
            self.placement.settle(self.id)
            self.placement.leave()
            self.id, self.grace = accepted.attached_to, True
        elif not accepted.source:
            return
        else:
            self.placement.settle(self.id)
        if not self.follow:
            return
        source = self._source = self._new_reader()
        if accepted.source:
            source.attach(Place(accepted.worker, accepted.source))
        elif self.durable:
            source.go_on()
        else:
            self._desk.loop.call_soon(self.fail, EventsExpired(self.id))

    # --- Events (ReaderSink)

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event, from worker, channel or router. Per-token path."""
        if self._alone is not None and not self._joins(event, kind):
            return
        if kind == "token":
            if self._opened:
                self._first_token()
            self._tokens[self.surface] += event.token.units or 1
            self._reader.event(event, kind)
            return
        if kind in ("finished", "error"):
            if self.ended:
                return
            if kind == "finished":
                self._hop.tell(hop_facts.of_finished(event.finished))
            self._end(kind if kind == "finished" else from_status(event.error.status).name)
        elif kind == "resumed":
            self._resumed(event)
        elif kind in ("started", "taken_over", "diverged"):
            self._hop.mark(kind)
        self._reader.event(event, kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """Nothing follows: the generation is gone for good, or was never the tenant's."""
        if self._alone is None or not self._begin_alone():
            self.fail(error)

    def fail(self, error: StreamwayError) -> None:
        """Ends it with an error that this edge makes; such an event has no position."""
        if self.ended:
            return
        position = self.position if self._known else 0
        self._end(error.name)
        problem = common_pb2.Error(status=to_status(error), delivered_until=position)
        self._reader.event(common_pb2.Event(generation=self.id, error=problem), "error")

    # --- Inside

    def _joins(self, event: common_pb2.Event, kind: str) -> bool:
        """False: an event of what it follows that its reader need not see, or not yet. What was told must not be told again if
        that one fails before its first token, and this one is opened anew."""
        if kind == "started":
            self._held = event
            return False
        if kind == "error" and self._begin_alone():
            return False
        if kind in ("token", "finished", "error"):
            self._alone, held, self._held = None, self._held, None
            if held is not None:
                self._reader.event(held, "started")
        return True

    def _begin_alone(self) -> bool:
        """What it follows has failed before its first token: it is asked for again, and does not join that one."""
        request, self._alone, self._held = self._alone, None, None
        if request is None or self._cancelled or self.ended or self.placement.exhausted:
            return False
        if self._source is not None:
            self._source.close()
            self._source = None
        self._last = START
        self.placement.ask_again(request, self._follows)
        self._desk.place_again(self)
        return True

    def _resumed(self, event: common_pb2.Event) -> None:
        self._known = True
        assert self._source is not None, "only a reader resumes"
        self.durable = self._source.durable
        self._hop.mark("recovered" if event.resumed.recovered else "not_recovered")
        self._hop.link(self._source.traceparent)
        event.generation = self.id
        if not event.resumed.after:
            event.resumed.after = str(self.cursor)
        self._desk.metrics.resumed(event.resumed)

    def _new_reader(self) -> GenerationReader:
        """From the last event that came from the router: those have no epoch."""
        ports, cursor = self._desk.ports, self._last
        read = self._follows or self.id
        return GenerationReader(ports, read, self.tenant, self, cursor=cursor, durable=self.durable)

    def _channel_reader(self) -> GenerationReader:
        """What reads the channel; an answer from the cache has none until it is needed."""
        if self._source is None:
            self._source = self._new_reader()
            self.placement.settle(self.id)
        return self._source

    def _expire(self) -> None:
        self._stop()
        self.fail(DeadlineExceeded("the answer was being made" if self.position > 1 else "it waited"))

    def _first_token(self) -> None:
        waited_s = self._desk.loop.time() - self._opened
        self._hop.mark("first_token")
        self._desk.metrics.ttft.labels(self.surface).observe(waited_s, self._hop.exemplar)
        self._desk.first_tokens.note(waited_s * 1000)
        self._opened = 0.0

    def _stop(self) -> None:
        """Sends a cancel, once, the shortest way there is."""
        if self._cancelled:
            return
        self._cancelled = True
        if self.placement.cancel(self.id):
            return
        if self._shared or self._source is None or not self._source.cancel():
            self._desk.cancel_elsewhere(self.id, self.tenant)

    def _end(self, outcome: str) -> None:
        self.ended = True
        hop, exemplar = self._hop, self._hop.exemplar
        hop.end(outcome)
        self._desk.metrics.duration.labels(self.surface).observe(max(0.0, hop.ended - hop.began), exemplar)
        self.placement.request = None
        if self._clock_timer is not None:
            self._clock_timer.cancel()
        if self._source is not None:
            # The two hold each other, and must not wait for the cycle collector.
            self._last = self._source.cursor
            self._source.close()
            self._source = None
        self.placement.settle(self.id)
        self._desk.ended(self, outcome)
