"""Reading a channel for one sink, from its cursor to the tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from google.protobuf.message import DecodeError

from streamway.following.page import before, events_of
from streamway.following.ports import ReaderSink
from streamway.journal import (
    START,
    Behind,
    Continues,
    Cursor,
    Diverged,
    Entry,
    Kind,
    Line,
    Merger,
    NotRecovered,
    Verdict,
    read_channel,
    read_tail,
)
from streamway.journal.reading import Read
from streamway.v1 import common_pb2
from streamway.valkey.session import Session

_PAGE: Final = 500

Announce = Callable[[common_pb2.Resumed], None]
Wanted = Callable[[], bool]


class Found(Enum):
    """How far it came."""

    ENDED = "ended"  # the terminal event was delivered
    TAIL = "tail"  # everything there is
    NOTHING = "nothing"  # there is no channel
    BEHIND = "behind"  # the channel stops before the cursor and has no end: a worker may write it again
    UNREADABLE = "unreadable"  # it can't be told now: a hole, damage, or the store does not answer
    DIVERGED = "diverged"  # the sink was told so; read again from the new cursor
    STOPPED = "stopped"  # the sink wants no more


class CatchingUp:
    """Delivers what a channel has beyond a merger's cursor. `after_batch` is called after each page."""

    def __init__(
        self, generation: str, merger: Merger, sink: ReaderSink, after_batch: Callable[[], None] | None
    ) -> None:
        self._generation = generation
        self._merger = merger
        self._sink = sink
        self._after_batch = after_batch

    def redirect(self, generation: str) -> None:
        """The channel is another generation's."""
        self._generation = generation

    async def run(self, session: Session, wanted: Wanted, announce: Announce | None) -> tuple[Found, Cursor]:
        """Reads to the tail, and says up to which entry it read. `announce` is told once what became of the cursor, unless
        only a worker can know.

        Raises LinkLost or StoreRefused.
        """
        limit = _PAGE
        while wanted():
            cursor = self._merger.cursor
            read = await read_channel(session, self._generation, cursor, self._merger.line, limit)
            if not wanted():
                break
            if not isinstance(read.outcome, Continues):
                found = await self._turned_away(session, cursor, read, announce)
                announce = None
                if found is not None:
                    return found, read.tail
                continue
            resumed = common_pb2.Resumed(recovered=True, after=str(cursor), oldest=read.oldest)
            if cursor == read.tail and await self._at_end(session, cursor):
                return await self._end_again(session, announce, resumed), cursor
            self._tell(announce, resumed)
            announce = None
            found = self.take(read.entries, wanted, read.outcome.line)
            self._flush()
            if found is not Found.DIVERGED and (found is not Found.TAIL or not read.more):
                return found, read.tail
            # Entries beside the line move the reading on, and not the cursor.
            limit = _PAGE if self._merger.cursor != cursor else limit * 4
        return Found.STOPPED, START

    async def _turned_away(
        self, session: Session, cursor: Cursor, read: Read, announce: Announce | None
    ) -> Found | None:
        """What becomes of a cursor from which the channel can't go on. None: it has moved, read again."""
        match read.outcome:
            case NotRecovered(None):
                return Found.NOTHING
            case NotRecovered():
                if announce is None or not await self._from_oldest(session, read.oldest):
                    return Found.UNREADABLE
                self._tell(announce, common_pb2.Resumed(recovered=False, oldest=read.oldest))
            case Behind(tail, ended):
                if not ended:
                    return Found.BEHIND
                told = common_pb2.Resumed(recovered=False, behind=True, after=str(tail), oldest=read.oldest)
                return await self._end_again(session, announce, told)
            case Diverged() as diverged:
                self._tell(announce, common_pb2.Resumed(recovered=True, after=str(cursor), oldest=read.oldest))
                self._diverge(diverged)
        return None

    def take(self, entries: Sequence[Entry], wanted: Wanted, line: Line | None = None) -> Found:
        """Delivers what is new in these. TAIL: that was all. `line`: the one they are known to be on. Writing out what was
        delivered is the caller's."""
        for entry in entries:
            try:
                events = events_of(entry)
            except DecodeError:
                return Found.UNREADABLE
            for event in events:
                found = self._offer(event, entry, line)
                if found is not Found.TAIL:
                    return found
                if not wanted():
                    return Found.STOPPED
        return Found.TAIL

    def _offer(self, event: common_pb2.Event, entry: Entry, line: Line | None) -> Found:
        first = event.first_position or event.position
        begin = entry.begin.line if entry.begin is not None else None
        verdict = self._merger.receive(event.epoch, first, event.position, begin)
        if verdict is Verdict.DELIVER:
            kind = event.WhichOneof("event") or ""
            self._sink.event(event, kind)
            return Found.ENDED if kind in ("finished", "error") else Found.TAIL
        if verdict is Verdict.DROP:
            return Found.TAIL
        if isinstance(verdict, Diverged):
            self._diverge(verdict)
            return Found.DIVERGED
        if line is None or first > self._merger.cursor.position:
            return Found.UNREADABLE
        # The cursor lies inside this event: a text can't be cut, so what was shown of it is taken back.
        self._diverge(Diverged(before(first, line), line))
        return self._offer(event, entry, line)

    def _diverge(self, diverged: Diverged) -> None:
        self._merger.restart(diverged)
        self._sink.event(common_pb2.Event(diverged=common_pb2.Diverged(at=str(diverged.at))), "diverged")

    async def _from_oldest(self, session: Session, oldest: int) -> bool:
        """Puts the merger before the first position that is kept."""
        tail = await read_tail(session, self._generation)
        if tail is None:
            return False
        self._merger.restart(Diverged(before(oldest, tail.line), tail.line))
        return True

    async def _at_end(self, session: Session, cursor: Cursor) -> bool:
        """Whether the reader has the end. What was appended since the page was read is not what it has."""
        tail = await read_tail(session, self._generation)
        return tail is not None and tail.entry.kind is Kind.END and tail.entry.id == cursor

    async def _end_again(self, session: Session, announce: Announce | None, resumed: common_pb2.Resumed) -> Found:
        """The terminal event alone, also to a reader that has it: a stream must not stop without one. The last tokens may stand
        in the same entry, and those it has."""
        tail = await read_tail(session, self._generation)
        if tail is None or tail.entry.kind is not Kind.END:
            return Found.UNREADABLE
        back = Diverged(before(tail.entry.last, tail.line), tail.line)
        if announce is not None:
            self._tell(announce, resumed)
            self._merger.restart(back)
        else:
            self._diverge(back)
        found = self.take([tail.entry], lambda: True, tail.line)
        self._flush()
        return found

    def _tell(self, announce: Announce | None, resumed: common_pb2.Resumed) -> None:
        if announce is not None:
            announce(resumed)
            self._flush()

    def _flush(self) -> None:
        if self._after_batch is not None:
            self._after_batch()
