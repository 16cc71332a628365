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
* Without a channel (`durable=False`) a lost worker is `lost` at once.
* A cursor the channel can't serve is told in `resumed`: `recovered=False` (then come the events from `oldest` on, if there
  are any) or `behind` (then comes how the answer ended). `diverged` right after a `resumed` takes back a part of the text.

Nothing here blocks or raises. Events that come while the channel is read are delivered in groups with `after_batch` after each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from streamway.errors import (
    EventsExpired,
    GenerationNotFound,
    StoreUnavailable,
    StreamwayError,
    from_status,
)
from streamway.following.catching_up import CatchingUp, Found
from streamway.following.ports import Located, Place, ReaderPorts, ReaderSink
from streamway.following.records import read_record
from streamway.following.search import Search
from streamway.journal import START, Ahead, Cursor, Entry, Following, Line, Merger
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import View
from streamway.valkey.session import LinkLost, Session, StoreRefused

_TERMINAL: Final = frozenset({"finished", "error"})
_LOCATE_S: Final = 5.0  # one question to `locate` waits so long
_FIRST_WORD_S: Final = 1.0  # a worker that took a cursor and refuses it says so at once
_SETTLED_S: Final = 5.0  # a worker that served for so long was the right one: what comes is a new search


class GenerationReader:
    """One reader of one generation. See the module."""

    __slots__ = (
        "_ahead",
        "_announcing",
        "_catching_up",
        "_deliver",
        "_following",
        "_generation",
        "_merger",
        "_news",
        "_number",
        "_ports",
        "_quiet_since",
        "_sink",
        "_stuck_at",
        "_subscribed_at",
        "_tenant",
        "_turn",
        "durable",
        "ended",
        "place",
    )

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
        self._ports = ports
        self._generation = generation
        self._tenant = tenant
        self._sink = sink
        self._deliver = sink.event
        self._merger = Merger(cursor, line)
        self._catching_up = CatchingUp(generation, self._merger, sink, ports.after_batch)
        self._following: Following | None = None
        # What it was given and the store did not have then.
        self._ahead: Ahead | None = None
        self._news = asyncio.Event()
        self._number = 0
        # Grows with each change of direction: whoever finds another one than its own stops.
        self._turn = 0
        # The cursor a resume began at, until `resumed` is told.
        self._announcing: Cursor | None = None
        self._stuck_at = cursor
        self._quiet_since = 0.0
        self._subscribed_at = 0.0
        self.durable = durable
        self.place: Place | None = None
        self.ended = False

    @property
    def cursor(self) -> Cursor:
        """Of the last event the sink got."""
        return self._merger.cursor

    @property
    def line(self) -> Line | None:
        """The line it came along, as far as it is known."""
        return self._merger.line

    def attach(self, place: Place) -> None:
        """Reads live at a worker that has the generation or will have it."""
        self._stop()
        if not self.ended:
            self._subscribe(place)

    def resume(self) -> None:
        """Goes on from the cursor of a client that came back: `resumed` first. Another tenant's generation is not found."""
        self._stop()
        if not self.ended:
            self._announcing = self.cursor
            self._start(self._resume(self._turn))

    def go_on(self) -> None:
        """Goes on after `pause`, from the channel."""
        self._stop()
        if self.ended:
            return
        if self.durable:
            self._start(self._travel(self._turn, "", None))
        elif self.place is not None:
            self._subscribe(self.place)

    def pause(self) -> None:
        """Nothing more is delivered until `go_on`."""
        self._stop()

    def close(self) -> None:
        """Nothing more is delivered."""
        self._stop()
        self.ended = True

    def cancel(self) -> bool:
        """Aborts the generation at the worker it was last read from; False when there is none."""
        if self.place is None:
            return False
        self._ports.pool.client(self.place.address, self.place.worker).cancel(self._generation)
        return True

    # --- AttachSink

    def event(self, event: common_pb2.Event, kind: str) -> None:
        if self._announcing is not None:
            refused = kind == "error" and not event.epoch
            if not (refused and self.durable):
                self._announce(common_pb2.Resumed(recovered=not refused, after=str(self._announcing)))
        if event.not_durable:
            self._ahead = self._ahead or Ahead()
            self._ahead.add(event)
        elif self._ahead is not None and event.position:
            # The worker logs before it delivers again only when the store has everything.
            self._ahead = None
        if kind in _TERMINAL:
            self._number = 0
            if kind == "error" and not event.epoch and self.durable:
                # The worker can't serve this reader; that says nothing of the generation.
                self._depart("", from_status(event.error.status))
                return
            self._end()
        self._deliver(event, kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self._number = 0
        if not self.durable:
            self._lose(error)
            return
        worker = self.place.worker if self.place is not None else ""
        self._depart(worker, error)

    def gap(self) -> None:
        self._number = 0
        if not self.durable:
            self._lose(EventsExpired(self._generation))
            return
        self._depart("", EventsExpired(self._generation))

    # --- FollowerListener

    def entries(self, entries: list[Entry]) -> None:
        found = self._catching_up.take(entries, lambda: self._following is not None)
        if found is Found.ENDED:
            self._stop()
            self._end()
        elif found is not Found.TAIL:
            self.interrupted()

    def interrupted(self) -> None:
        self._unfollow()
        self._news.set()

    # --- Directions

    async def _resume(self, turn: int) -> None:
        """Whose it is comes first: another tenant must learn nothing, not even that there is something."""
        try:
            async with asyncio.timeout(self._ports.store_wait_s):
                session = await self._ports.journal.session()
                record = await read_record(session, self._generation)
        except (TimeoutError, LinkLost, StoreRefused):
            located = await self._locate("", wait_s=0.0)
            if isinstance(located, StreamwayError) or turn != self._turn:
                if turn == self._turn:
                    self._lose(located if isinstance(located, StreamwayError) else StoreUnavailable())
                return
            self.durable = located.durable
        else:
            if turn != self._turn:
                return
            if record is None or record.tenant != self._tenant:
                self._lose(GenerationNotFound(self._generation))
                return
            self.durable = record.durable
        await self._travel(turn, "", None)

    async def _travel(self, turn: int, lost_worker: str, problem: StreamwayError | None) -> None:
        """From the channel to a worker that goes on; `problem` is what is told if there never is one."""
        self._heard_nothing()
        search = Search(self._generation, lost_worker, problem)
        while turn == self._turn and not await self._step(turn, search):
            pass

    async def _step(self, turn: int, search: Search) -> bool:
        """One look at the channel, and one for the worker. True: the search is over."""
        search.found = await self._read_channel(turn)
        if turn != self._turn:
            return True
        if search.found is Found.ENDED:
            self._end()
            return True
        if self._announcing is not None and search.refuted:
            self._lose(search.verdict(hopeless=True), search.found)
            return True
        if search.pause_s:
            await self._wait_for_news(search.pause_s)
        located = await self._locate(search.lost_worker, wait_s=_LOCATE_S if search.lost_worker else 0.0)
        if turn != self._turn:
            return True
        if isinstance(located, Located) and located.place is not None and search.reaches(located, self.cursor):
            self.durable = located.durable
            self._unfollow()
            self._subscribe(located.place)
            if self._announcing is not None:
                await self._first_word(turn)
            return True
        hopeless = search.not_reached(located)
        if hopeless or self._heard_nothing() >= self._ports.takeover_wait_s:
            self._lose(search.verdict(hopeless=hopeless), search.found)
            return True
        return False

    def _heard_nothing(self) -> float:
        """For how long nothing new has come, in seconds."""
        now = self._ports.clock()
        if self._stuck_at != self.cursor or not self._quiet_since:
            self._stuck_at, self._quiet_since = self.cursor, now
        return now - self._quiet_since

    async def _read_channel(self, turn: int) -> Found:
        """Everything up to its tail; from then on, what is appended. Announces where it can be known."""
        if self._following is not None:
            return Found.TAIL
        if not self.durable:
            return Found.NOTHING
        found = Found.UNREADABLE
        try:
            async with asyncio.timeout(self._ports.store_wait_s):
                session = await self._ports.journal.session()
            found, tail = await self._catch_up(session, turn)
            if found is Found.BEHIND and turn == self._turn and await self._write_ahead(session):
                found, tail = await self._catch_up(session, turn)
        except (TimeoutError, LinkLost, StoreRefused):
            return found
        if found is Found.TAIL and self._ports.follower is not None and turn == self._turn:
            self._following = self._ports.follower.follow(self._generation, tail, self)
        return found

    async def _catch_up(self, session: Session, turn: int) -> tuple[Found, Cursor]:
        announce = self._announce if self._announcing is not None else None
        return await self._catching_up.run(session, lambda: turn == self._turn, announce)

    async def _write_ahead(self, session: Session) -> bool:
        """The channel stops before this reader: whoever takes over must start behind what was shown."""
        return self._ahead is not None and await self._ahead.write(session, self._generation)

    async def _locate(self, lost_worker: str, *, wait_s: float) -> Located | StreamwayError:
        try:
            return await self._ports.locate(
                self._generation,
                self._tenant,
                wait_s=wait_s,
                above_epoch=self.cursor.epoch if lost_worker else 0,
                lost_worker=lost_worker,
            )
        except StreamwayError as refused:
            return refused

    async def _wait_for_news(self, pause_s: float) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(pause_s):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _first_word(self, turn: int) -> None:
        """A worker that is asked to go on from a cursor the channel could not judge refuses at once, or has it."""
        await asyncio.sleep(_FIRST_WORD_S)
        if turn == self._turn and self._announcing is not None:
            self._announce(common_pb2.Resumed(recovered=True, after=str(self._announcing)))
            self._flush()

    # --- Steps

    def _subscribe(self, place: Place) -> None:
        self.place = place
        self._subscribed_at = self._ports.clock()
        client = self._ports.pool.client(place.address, place.worker)
        self._number = client.subscribe(self._generation, self._merger, View.VIEW_LIVE, self)

    def _depart(self, lost_worker: str, problem: StreamwayError) -> None:
        """The worker is left behind."""
        if self._ports.clock() - self._subscribed_at >= _SETTLED_S:
            self._quiet_since = 0.0
        self._turn += 1
        self._start(self._travel(self._turn, lost_worker, problem))

    def _start(self, journey: Coroutine[Any, Any, None]) -> None:
        self._ports.scope.spawn(journey, "follow")

    def _announce(self, resumed: common_pb2.Resumed) -> None:
        self._announcing = None
        self._deliver(common_pb2.Event(resumed=resumed), "resumed")

    def _stop(self) -> None:
        self._turn += 1
        self._news.set()
        self._unfollow()
        if self._number and self.place is not None:
            self._ports.pool.client(self.place.address, self.place.worker).unsubscribe(self._number)
            self._number = 0

    def _unfollow(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None

    def _end(self) -> None:
        self._turn += 1
        self._unfollow()
        self.ended = True

    def _lose(self, error: StreamwayError, found: Found = Found.NOTHING) -> None:
        if self._announcing is not None and not isinstance(error, GenerationNotFound):
            self._announce(common_pb2.Resumed(recovered=False, behind=found is Found.BEHIND))
        self._end()
        self._sink.lost(error, self.cursor.position)
        self._flush()

    def _flush(self) -> None:
        if self._ports.after_batch is not None:
            self._ports.after_batch()
