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

from services.edge.interfaces import Reader
from services.edge.io.router_link import RouterLink
from streamway.errors import (
    Cancelled,
    DeadlineExceeded,
    EventsExpired,
    GoingAway,
    RouterUnavailable,
    StreamwayError,
    from_status,
    to_status,
)
from streamway.following import GenerationReader, Place
from streamway.journal.cursor import START, Cursor
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import VIEW_LIVE

if TYPE_CHECKING:
    from services.edge.io.desk import Desk

# The mesh gets this long beyond a deadline to say itself how the generation ended.
_DEADLINE_MARGIN_S: Final = 0.25
_MOST_PLACEMENTS: Final = 8
_OFF: Final = frozenset({common_pb2.DURABILITY_UNSPECIFIED, common_pb2.DURABILITY_OFF})


class Generation:
    """See the module. `id` changes once where an idempotency key attaches a request to an earlier generation.

    `grace`: a reader that leaves does not cancel it. `durable`: it has a response channel.
    """

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_clock_timer",
        "_desk",
        "_known",
        "_last",
        "_life",
        "_link",
        "_opened",
        "_placements",
        "_reader",
        "_request",
        "_source",
        "_tokens",
        "durable",
        "ended",
        "follow",
        "grace",
        "id",
        "paused",
        "session",
        "surface",
        "tenant",
    )

    def __init__(self, desk: Desk, id_: str, tenant: str, reader: Reader, surface: str) -> None:
        self.id = id_
        self.tenant = tenant
        self.surface = surface
        self.session = ""
        self.grace = True
        self.durable = False
        self.follow = True
        self.paused = False
        self.ended = False
        self._desk = desk
        # Kept until the mesh has accepted it: then it may be large and is not needed any more.
        self._request: common_pb2.GenerationRequest | None = None
        self._reader = reader
        self._source: GenerationReader | None = None
        self._link: RouterLink | None = None
        self._life = 0
        self._placements = 0
        # Of the last event from the router, and, once it has ended, of its last event.
        self._last = START
        # A resumed one is known once it is sure that it is its tenant's.
        self._known = True
        self._cancelled = False
        self._tokens = desk.metrics.tokens
        self._opened = 0.0
        self._clock_timer: asyncio.TimerHandle | None = None

    def begin(self, request: common_pb2.GenerationRequest, now_unix_s: float) -> None:
        """It is a new one."""
        self._request = request
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
        return self._request is not None and self._link is None and not self.ended

    # --- What the client wants

    def cancel(self) -> None:
        """The client wants it to stop. The terminal event still comes; at once when nobody has it yet."""
        if self._cancelled or self.ended:
            return
        self._cancelled = True
        if self.waiting:
            self.fail(Cancelled())
            return
        self._send_cancel()

    def leave(self) -> None:
        """The client is gone: nothing is read any more. Without grace the generation is cancelled wherever it is."""
        if self.ended:
            return
        if not self.grace and not self._cancelled:
            self._cancelled = True
            self._send_cancel()
        self._end("left")

    def pause(self) -> bool:
        """The client reads too slowly: nothing more until `go_on`, which reads what it missed from the channel.

        False: it has no channel, and must be read as it comes.
        """
        if self.ended or self.paused or self._request is not None:
            return True
        if self._known and not self.durable:
            return False
        self.paused = True
        self._channel_reader().pause()
        self._desk.metrics.pauses += 1
        return True

    def go_on(self) -> None:
        """The client reads again."""
        if not self.paused or self.ended:
            return
        self.paused = False
        if self._known:
            self._channel_reader().go_on()
        else:
            self._channel_reader().resume()

    async def touch(self) -> None:
        """A sign of life of a client for which it is paused: a worker ends what nobody reads for longer than its grace."""
        source, ports = self._source, self._desk.ports
        if not self.paused or self.ended or source is None:
            return
        place = source.place
        if place is None:
            place = (await ports.locate(self.id, self.tenant, wait_s=0.0, above_epoch=0, lost_worker="")).place
        if place is not None:
            client = ports.pool.client(place.address, place.worker)
            client.unsubscribe(client.subscribe(self.id, source.cursor, VIEW_LIVE, _NOBODY))

    def detach(self, error: StreamwayError) -> None:
        """This edge stops. Where it can be resumed elsewhere it goes on without a reader; the others are cancelled."""
        if not self.ended and not (self.grace and self.durable):
            self.cancel()
        self.fail(error)

    # --- What the routers say

    def place(self, link: RouterLink) -> None:
        """Opens it at a router."""
        if self._request is None:
            return
        self._placements += 1
        self._link, self._life = link, link.life
        link.open(self, self._request)

    def routed(self, link: RouterLink, event: common_pb2.Event, kind: str) -> None:
        """An event from the router."""
        if self.ended or link is not self._link or self._source is not None:
            return
        if kind == "error" and not self._last.position and self._goes_elsewhere(event):
            link.leaving = True
            self._link = None
            self._desk.place_again(self)
            return
        if event.position:
            self._last = Cursor(0, event.position)
        if kind == "accepted":
            self._accepted(link, event.accepted)
            event.generation = self.id
        self.event(event, kind)
        if kind == "accepted" and not self.follow and not self.ended:
            self.leave()

    def unrouted(self, link: RouterLink) -> None:
        """The router is gone before it had said where this runs, or in the middle of an answer from the cache."""
        if self.ended or link is not self._link or self._source is not None:
            return
        self._link = None
        if self._last.position and self.durable:
            self._channel_reader().go_on()
        elif self._cancelled:
            self.fail(Cancelled())
        elif self._last.position or self._placements >= _MOST_PLACEMENTS:
            self.fail(RouterUnavailable())
        else:
            self._desk.place_again(self)

    def _accepted(self, link: RouterLink, accepted: common_pb2.Accepted) -> None:
        self._request = None
        self.durable = accepted.durability not in _OFF
        if accepted.attached_to and accepted.attached_to != self.id:
            # Its events are those of an earlier generation, which has them from its own `accepted` on.
            link.settle(self.id)
            self._link, self.id = None, accepted.attached_to
            self.grace = True
        elif not accepted.source:
            return
        else:
            link.settle(self.id)
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
        if kind == "token":
            if self._opened:
                self._first_token()
            self._tokens[self.surface] += event.token.units or 1
            self._reader.event(event, kind)
            return
        if kind in ("finished", "error"):
            if self.ended:
                return
            self._end(kind if kind == "finished" else from_status(event.error.status).name)
        elif kind == "resumed":
            self._resumed(event)
        self._reader.event(event, kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """Nothing follows: the generation is gone for good, or was never the tenant's."""
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

    def _resumed(self, event: common_pb2.Event) -> None:
        self._known = True
        assert self._source is not None, "only a reader resumes"
        self.durable = self._source.durable
        event.generation = self.id
        if not event.resumed.after:
            event.resumed.after = str(self.cursor)
        self._desk.metrics.resumes[_outcome(event.resumed)] += 1

    def _new_reader(self) -> GenerationReader:
        """From the last event that came from the router: those have no epoch."""
        ports, cursor = self._desk.ports, self._last
        return GenerationReader(ports, self.id, self.tenant, self, cursor=cursor, durable=self.durable)

    def _channel_reader(self) -> GenerationReader:
        """What reads the channel; an answer from the cache has none until it is needed."""
        if self._source is None:
            self._source = self._new_reader()
            if self._link is not None:
                self._link.settle(self.id)
        return self._source

    def _expire(self) -> None:
        if self.ended:
            return
        if not self._cancelled:
            self._cancelled = True
            self._send_cancel()
        self.fail(DeadlineExceeded("the answer was being made" if self.position > 1 else "it waited"))

    def _first_token(self) -> None:
        self._desk.metrics.ttft.labels(self.surface).observe(self._desk.loop.time() - self._opened)
        self._opened = 0.0

    def _goes_elsewhere(self, event: common_pb2.Event) -> bool:
        """The router refused since it shuts down: another one may take the same request."""
        if self._cancelled or self._placements >= _MOST_PLACEMENTS:
            return False
        return isinstance(from_status(event.error.status), GoingAway)

    def _send_cancel(self) -> None:
        link = self._link
        if link is not None and link.live and link.life == self._life:
            link.cancel(self.id)
        elif self._source is None or not self._source.cancel():
            self._desk.cancel_elsewhere(self.id, self.tenant)

    def _end(self, outcome: str) -> None:
        self.ended = True
        self._request = None
        if self._clock_timer is not None:
            self._clock_timer.cancel()
        if self._source is not None:
            # The two hold each other, and must not wait for the cycle collector.
            self._last = self._source.cursor
            self._source.close()
            self._source = None
        if self._link is not None:
            self._link.settle(self.id)
        self._desk.ended(self, outcome)


class _Nobody:
    """Reads a generation only for its worker to know that it is wanted."""

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """Not wanted."""

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """Its reader will find out."""

    def gap(self) -> None:
        """Its reader will find out."""


_NOBODY: Final = _Nobody()


def _outcome(resumed: common_pb2.Resumed) -> str:
    if resumed.behind:
        return "behind"
    return "recovered" if resumed.recovered else "not_recovered"
