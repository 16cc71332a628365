"""Follows one generation wherever it is, so that its reader gets every position once, in order.

    class MySink:                                        # a ReaderSink
        def event(self, event, kind): ...                # each event once; exactly one terminal event, or …
        def lost(self, error, delivered_until): ...      # … this instead

    reader = GenerationReader(ports, generation, tenant, sink, cursor=Cursor(0, 1))
    reader.attach(place)        # live: `accepted` has just said where it runs
    reader.resume()             # or: a client came back with a cursor; the first event is `resumed`
    reader.pause()              # stop reading (slow client, lost socket); the generation goes on for its grace
    reader.go_on()              # and again, from the channel; no `resumed`
    reader.cancel()             # stop the generation where it runs; False: the caller must do it through a router
    reader.close()              # stop reading for good
    reader.cursor, reader.place, reader.ended

How it moves:

        attach                     lost, gap, or the worker has it no more
       ────────► LIVE ──────────────────────────────┐
                  ▲                                 ▼
                  │ located              CHANNEL: read to its tail ◄──── resume, go_on
                  └──────── SEARCHING ◄─────────────┘
                     meanwhile: what is appended to the channel

* One merger judges every event, live or from the channel, so the ways may overlap: what the sink has is dropped, a hole is
  read from the channel, and where a newer call does not continue the text that was shown (only a store that lost data makes
  that) the sink gets `diverged` and then the new text.
* SEARCHING asks `locate` for an engine call above the cursor's epoch, for `takeover_wait_s` without any news; then `lost`.
* Without a channel (`durable=False`) a lost worker is `lost` at once; one that has left it to another before its first token
  says so, and the reader looks for that one.
* A cursor the channel can't serve is told in `resumed`: `recovered=False` (then come the events from `oldest` on, if there
  are any) or `behind` (then comes how the answer ended). `diverged` right after a `resumed` takes back a part of the text.

Nothing here blocks or raises. Events that come while the channel is read are delivered in groups with `after_batch` after each.
"""

from __future__ import annotations

from typing import Final

from streamway.errors import EventsExpired, StreamwayError, from_status
from streamway.following.arrival import Arrival
from streamway.following.catching_up import Found
from streamway.following.journey import Journey
from streamway.following.ports import Place, ReaderPorts, ReaderSink
from streamway.following.standing import Standing
from streamway.journal import START, Ahead, Cursor, Entry, Line, Merger
from streamway.v1 import common_pb2

_TERMINAL: Final = frozenset({"finished", "error"})
_SETTLED_S: Final = 5.0  # a worker that served for so long was the right one: what comes is a new search


class GenerationReader:
    """One reader of one generation. See the module."""

    __slots__ = ("_at", "_deliver")

    def __init__(
        self,
        ports: ReaderPorts,
        generation: str,
        tenant: str,
        sink: ReaderSink,
        *,
        cursor: Cursor = START,
        line: Line | None = None,
        durable: bool = True,
    ) -> None:
        self._at = Standing(ports, generation, tenant, sink, Merger(cursor, line), durable=durable)
        self._deliver = sink.event

    @property
    def cursor(self) -> Cursor:
        """Of the last event the sink got."""
        return self._at.merger.cursor

    @property
    def line(self) -> Line | None:
        """The line it came along, as far as it is known."""
        return self._at.merger.line

    @property
    def durable(self) -> bool:
        """The generation has, or had, a response channel."""
        return self._at.durable

    @property
    def shared(self) -> bool:
        """Others read the same events, as far as its record told."""
        return self._at.shared

    @property
    def traceparent(self) -> str:
        """Of the request that began it, after `resume`; empty where its trace is not recorded, or not known."""
        return self._at.traceparent

    @property
    def place(self) -> Place | None:
        """Where it was read last."""
        return self._at.place

    @property
    def ended(self) -> bool:
        """Nothing more is delivered."""
        return self._at.ended

    def attach(self, place: Place) -> None:
        """Reads live at a worker that has the generation or will have it."""
        self._at.stop()
        if not self._at.ended:
            self._at.subscribe(place, self)

    def resume(self) -> None:
        """Goes on from the cursor of a client that came back: `resumed` first. Another tenant's generation is not found."""
        at = self._at
        at.stop()
        if not at.ended:
            at.announcing = at.cursor
            at.ports.crowd.ask(Arrival(at, self))

    def go_on(self) -> None:
        """Goes on after `pause`, from the channel."""
        at = self._at
        at.stop()
        if at.ended:
            return
        if at.durable:
            self._travel("", None)
        elif at.place is not None:
            at.subscribe(at.place, self)

    def pause(self) -> None:
        """Nothing more is delivered until `go_on`."""
        self._at.stop()

    def close(self) -> None:
        """Nothing more is delivered."""
        self._at.stop()
        self._at.ended = True

    def cancel(self) -> bool:
        """Aborts the generation at the worker it was last read from; False when there is none, or a router must decide."""
        place = self._at.place
        if place is None or self._at.shared:
            return False
        self._at.ports.pool.client(place.address, place.worker).cancel(self._at.generation)
        return True

    # --- AttachSink

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """From the worker. Per-token path."""
        at = self._at
        if kind == "token" and at.announcing is None and at.ahead is None and not event.not_durable:
            self._deliver(event, kind)
            return
        if at.announcing is not None:
            refused = kind == "error" and not event.epoch
            if not (refused and self._goes_on_elsewhere(event)):
                at.announce(common_pb2.Resumed(recovered=not refused, after=str(at.announcing)))
        if event.not_durable:
            at.ahead = at.ahead or Ahead()
            at.ahead.add(event)
        elif at.ahead is not None and event.position:
            # The worker logs before it delivers again only when the store has everything.
            at.ahead = None
        if kind in _TERMINAL:
            at.number = 0
            if kind == "error" and not event.epoch and self._goes_on_elsewhere(event):
                # The worker can't serve this reader; that says nothing of the generation.
                self._depart("", from_status(event.error.status))
                return
            at.end()
        self._deliver(event, kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """The worker is gone."""
        at = self._at
        at.number = 0
        if not at.durable:
            at.lose(error)
            return
        self._depart(at.place.worker if at.place is not None else "", error)

    def gap(self) -> None:
        """What comes next is not at the worker."""
        self._at.number = 0
        expired = EventsExpired(self._at.generation)
        if not self._at.durable:
            self._at.lose(expired)
            return
        self._depart("", expired)

    # --- FollowerListener

    def entries(self, entries: list[Entry]) -> None:
        """What was appended to the channel."""
        at = self._at
        found = at.catching_up.take(entries, lambda: at.following is not None)
        at.flush()
        if found is Found.ENDED:
            at.stop()
            at.end()
        elif found is not Found.TAIL:
            self.interrupted()

    def interrupted(self) -> None:
        """The channel must be read again."""
        self._at.unfollow()
        self._at.tell_news()

    def _goes_on_elsewhere(self, event: common_pb2.Event) -> bool:
        """Whether an error of the worker's own, not of the generation, is none for this reader. Without a channel only where the
        worker has left it to another one, which makes it from the beginning."""
        return self._at.durable or "moved" in from_status(event.error.status).metadata

    def _depart(self, lost_worker: str, problem: StreamwayError) -> None:
        """The worker is left behind."""
        at = self._at
        if at.ports.clock() - at.subscribed_at >= _SETTLED_S:
            at.quiet_since = 0.0
        at.turn += 1
        self._travel(lost_worker, problem)

    def _travel(self, lost_worker: str, problem: StreamwayError | None) -> None:
        self._at.spawn(Journey(self._at, self, lost_worker, problem).run())
