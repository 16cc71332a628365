"""A client comes back: the short way, for as long as nothing unusual is found.

    record, tail, first page    one round trip, with those of all who arrive     (crowd.ask)
      → `resumed` and the first tokens
    further pages               when nobody waits for its first token            (crowd.later)
    the worker that wrote last  where this process has an open stream to it: subscribed at once

Anything else is left to `journey`, which begins with the channel again and asks a router for the worker: another call has begun
or ended it, the cursor can't be served, the store is away or has no record of it, the worker is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from streamway.following.catching_up import Found
from streamway.following.crowd import Question
from streamway.following.journey import Journey, Traveller
from streamway.following.ports import Place
from streamway.following.records import pack_record_question, record_of
from streamway.following.standing import Standing
from streamway.journal import Continues, Cursor, Kind
from streamway.journal.packing import pack_look
from streamway.journal.reading import judged
from streamway.v1 import common_pb2

_PAGE: Final = 500
# Another reader may just be opening the stream to the worker.
_LOOKS_FOR_WORKER: Final = 5
_LOOK_AGAIN_S: Final = 0.02


class Arrival(Question):
    """One resume, from its record to its worker. What it reads first is whose it is: another tenant must learn nothing, not
    even that there is something."""

    __slots__ = ("_asked", "_at", "_looks", "_record", "_traveller", "_turn", "_worker")

    def __init__(self, at: Standing, traveller: Traveller, worker: str | None = None) -> None:
        """`worker` is what the record says, for a further page; None: it must be read first."""
        super().__init__()
        self._at = at
        self._traveller = traveller
        self._turn = at.turn
        self._record = worker is None
        self._worker = worker or ""
        self._looks = 0
        self._asked = at.cursor

    def packed(self) -> tuple[bytes, int]:
        at = self._at
        cursor = self._asked = at.cursor
        if not self._record:
            return pack_look(at.generation, cursor, _PAGE)
        look, count = pack_look(at.generation, cursor, _first_page(cursor))
        return look + pack_record_question(at.generation), count + 1

    def answered(self, replies: Sequence[Any]) -> None:
        if not self._here():
            return
        if self._record:
            if not self._is_ours(replies[-1]):
                return
            replies = replies[:-1]
        self._read(replies)

    def unanswered(self) -> None:
        if not self._here():
            return
        journey = Journey(self._at, self._traveller, "", None)
        self._at.spawn(journey.run_without_store() if self._record else journey.run())

    def _here(self) -> bool:
        return self._turn == self._at.turn

    def _is_ours(self, row: Sequence[bytes | None]) -> bool:
        """The channel may be read on."""
        at = self._at
        record = record_of(row)
        if record is None or record.tenant != at.tenant:
            # What began while the store was away has no record, and a router that knows it.
            journey = Journey(at, self._traveller, "", None)
            at.spawn(journey.run_without_store(foreign=record is not None))
            return False
        at.shared = at.shared or bool(record.follows or record.shared)
        at.traceparent = record.trace
        if record.follows:
            at.redirect(record.follows)
            at.ports.crowd.ask(Arrival(at, self._traveller))
            return False
        self._record = False
        at.durable = record.durable
        self._worker = "" if record.ended else record.worker
        if not record.durable:
            self._travel()
        return record.durable

    def _read(self, replies: Sequence[Any]) -> None:
        at, cursor = self._at, self._asked
        try:
            read = judged(replies, cursor, at.merger.line)
        except ValueError:
            read = None
        if read is None or not isinstance(read.outcome, Continues):
            self._travel()
            return
        if cursor == read.tail and read.newest is Kind.END:
            # Nothing is new but the end, which is told again.
            self._travel()
            return
        if at.announcing is not None:
            at.announce(common_pb2.Resumed(recovered=True, after=str(cursor), oldest=read.oldest))
        found = at.catching_up.take(read.entries, self._here, read.outcome.line)
        if found is Found.ENDED:
            at.end()
        elif found is Found.TAIL and read.more and at.cursor != cursor:
            at.ports.crowd.later(self._read_on)
        elif found is Found.TAIL and not read.more and read.worker in ("", self._worker):
            at.ports.crowd.later(self._go_live)
        elif found is not Found.STOPPED:
            self._travel()

    def _read_on(self) -> None:
        """Asks for the next page."""
        if self._here():
            self._at.ports.crowd.later(Arrival(self._at, self._traveller, self._worker))

    def _go_live(self) -> None:
        """Subscribes at the worker, if there is a way to it."""
        at, worker = self._at, self._worker
        if not self._here():
            return
        address = at.ports.pool.open_to(worker) if worker else ""
        if address:
            at.subscribe(Place(worker, address), self._traveller)
        elif worker and self._looks < _LOOKS_FOR_WORKER and not at.ports.crowd.goes_ahead(worker):
            self._looks += 1
            at.ports.crowd.after(_LOOK_AGAIN_S, self._go_live)
        else:
            self._travel()

    def _travel(self) -> None:
        self._at.spawn(Journey(self._at, self._traveller, "", None).run())


def _first_page(cursor: Cursor) -> int:
    """Entries up to the first token: `accepted` and the begin come before it. When many arrive, each gets a token soon."""
    return 1 if cursor.epoch else 3 - min(1, cursor.position)
