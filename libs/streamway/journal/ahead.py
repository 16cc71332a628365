"""What a reader was given before the store had it, so that a takeover starts behind it and not behind the channel.

    in the channel   0-1  A-2  A-9                   its writer A is gone
    at the reader    0-1  A-2  A-9  A-10 … A-17      10 to 17 came as not durable
    written          A-17  first 10                  as one of A's own appends that arrives late

To the store it is exactly that: A's entry, cut where A cut it, under A's id. So every rule for an append that was under way
when its writer died holds for it too: once another call has begun it is refused, and if A lives after all and appends the
same, that is refused as being there already.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry, Kind, Tail, encode_events
from streamway.journal.functions import restore
from streamway.journal.reading import read_tail
from streamway.v1 import common_pb2
from streamway.valkey.session import Session

# Bytes of events that one reader keeps. Of more the oldest go, and with them the way back.
MOST_BYTES: Final = 262_144
# The tail may move while somebody writes; then it is read again, so often at most.
_TRIES: Final = 3
_TERMINAL: Final = frozenset({"finished", "error"})


class _Held(NamedTuple):
    epoch: int
    first: int
    last: int
    entry_last: int
    ends: bool
    raw: bytes


class Ahead:
    """The events of one reader that are not durable, newest `most_bytes` of them. Clear it when a durable one comes."""

    __slots__ = ("_bytes", "_held", "_most_bytes")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: deque[_Held] = deque()
        self._bytes = 0

    def add(self, event: common_pb2.Event) -> None:
        """Keeps a copy of an event that was delivered."""
        own = common_pb2.Event()
        own.CopyFrom(event)
        for name in ("subscription", "generation", "not_durable", "entry_position"):
            own.ClearField(name)
        raw = own.SerializeToString()
        first, last = event.first_position or event.position, event.position
        ends = event.WhichOneof("event") in _TERMINAL
        self._held.append(_Held(event.epoch, first, last, event.entry_position or last, ends, raw))
        self._bytes += len(raw)
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._held.popleft().raw)

    def entries(self, tail: Cursor) -> list[Entry]:
        """The entries that follow `tail` without a hole, as their writer cut them; none unless it wrote the tail too."""
        made: list[Entry] = []
        parts: list[_Held] = []
        last = tail.position
        for held in self._held:
            if held.epoch != tail.epoch or held.last <= last:
                continue
            if held.first != last + 1:
                break
            last = held.last
            parts.append(held)
            if last == held.entry_last:
                events = [common_pb2.Event.FromString(part.raw) for part in parts]
                kind = Kind.END if held.ends else Kind.TOKENS
                made.append(Entry(held.epoch, parts[0].first, last, kind, encode_events(events)))
                parts = []
        return made

    async def write(self, session: Session, generation: str) -> bool:
        """Writes what the channel lacks, if its newest entry is of the same engine call. True: something was written.

        Raises LinkLost or StoreRefused.
        """
        for _ in range(_TRIES):
            tail = await read_tail(session, generation)
            if tail is None or _over(tail):
                return False
            entries = self.entries(tail.entry.id)
            if not entries:
                return False
            if await restore(session, generation, tail.entry.id, entries):
                return True
        return False


def _over(tail: Tail) -> bool:
    return tail.entry.kind is Kind.END
