"""Entries of a response channel.

    sw:resp:{0197…}
      0-1         accepted  first 1
      1048999-2   begin     first 2   ref 9f… worker adapter-0 line 0:1,1048999:2
      1048999-9   tokens    first 3
      1048999-10  end       first 10

The id is the epoch and the *last* position an entry covers. The store refuses an id that is not above all it has, so a
repeated append and an append of an older epoch are both refused without a lock or a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from streamway.journal.cursor import Cursor
from streamway.journal.line import Line
from streamway.v1 import common_pb2, journal_pb2

# An epoch is the attempt with this many random bits behind it.
EPOCH_RANDOM_BITS: Final = 20
_BEFORE_CALLS: Final = Line(((0, 1),))


def attempt_of(epoch: int) -> int:
    """The attempt an epoch belongs to; 0 for what was written before any engine call."""
    return epoch >> EPOCH_RANDOM_BITS


class Kind(StrEnum):
    """What an entry is."""

    ACCEPTED = "accepted"
    BEGIN = "begin"
    TOKENS = "tokens"
    END = "end"


_BEGIN: Final = [b"kind", b"first", b"payload", b"ref", b"worker", b"line", b"from"]
_KINDS: Final = {kind.value.encode(): kind for kind in (Kind.ACCEPTED, Kind.TOKENS, Kind.END)}


class Begin(NamedTuple):
    """What a `begin` says beside its payload.

    `ref` is the task copy whose holder began; `from_worker` wrote the epoch before this one, empty when there was none.
    """

    ref: str
    worker: str
    line: Line
    from_worker: str = ""


class Entry(NamedTuple):
    """One entry. Covers the positions `first` to `last`. `begin` is set for that kind alone."""

    epoch: int
    first: int
    last: int
    kind: Kind
    payload: bytes
    begin: Begin | None = None

    @property
    def id(self) -> Cursor:
        """Its id in the stream."""
        return Cursor(self.epoch, self.last)

    def fields(self) -> list[str | int | bytes]:
        """Names and values as XADD takes them. The same entry always gives the same bytes."""
        fields: list[str | int | bytes] = ["kind", self.kind.value, "first", self.first, "payload", self.payload]
        if self.begin is not None:
            begin = self.begin
            fields += ["ref", begin.ref, "worker", begin.worker, "line", str(begin.line), "from", begin.from_worker]
        return fields

    @classmethod
    def parse(cls, id_: bytes, fields: Sequence[bytes]) -> Entry:
        """Reads one element of a reply of XRANGE. Raises ValueError when it is not one of ours."""
        if len(fields) == 6:
            # A resume reads thousands of these.
            one, name, two, first, three, payload = fields
            kind = _KINDS.get(name)
            if kind is not None and one == b"kind" and two == b"first" and three == b"payload":
                epoch, _, last = id_.partition(b"-")
                return cls(int(epoch), int(first), int(last), kind, payload)
        elif len(fields) == 14 and fields[::2] == _BEGIN and fields[1] == b"begin":
            # And one of these each.
            epoch, _, last = id_.partition(b"-")
            begun = Begin(fields[7].decode(), fields[9].decode(), Line.parse(fields[11].decode()), fields[13].decode())
            return cls(int(epoch), int(fields[3]), int(last), Kind.BEGIN, fields[5], begun)
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        epoch, _, last = id_.partition(b"-")
        try:
            kind = Kind(values[b"kind"].decode())
            begin = None
            if kind is Kind.BEGIN:
                line = Line.parse(values[b"line"].decode())
                begin = Begin(
                    values[b"ref"].decode(), values[b"worker"].decode(), line, values.get(b"from", b"").decode()
                )
            return cls(int(epoch), int(values[b"first"]), int(last), kind, values[b"payload"], begin)
        except KeyError as missing:
            raise ValueError(f"entry {id_!r} has no field {missing}") from None


class Tail(NamedTuple):
    """The newest entry of a channel, and the begin of its epoch; None before the first engine call, and where the begin was
    trimmed away. `kept`: then, what is left of the line.
    """

    entry: Entry
    begin: Begin | None
    kept: Line = _BEFORE_CALLS

    @property
    def line(self) -> Line:
        return self.begin.line if self.begin is not None else self.kept


def parse_entries(reply: Any) -> list[Entry]:
    """A reply of XRANGE or one stream of XREAD; None (no such key) gives no entries. Raises ValueError."""
    return [Entry.parse(id_, fields) for id_, fields in reply or ()]


def on_line(entries: Iterable[Entry], line: Line) -> list[Entry]:
    """Those entries that are part of the answer on a line. An entry never straddles the border of two epochs."""
    return [entry for entry in entries if line.holds(entry.epoch, entry.last)]


def encode_events(events: Iterable[common_pb2.Event]) -> bytes:
    """The payload for events that carry their positions, and neither subscription nor generation."""
    return journal_pb2.JournalPayload(events=events).SerializeToString()


def decode_events(entry: Entry) -> list[common_pb2.Event]:
    """The events of an entry, with epoch and positions. Raises protobuf's DecodeError.

    The event of a `begin` becomes `taken_over` when another worker's text came before; where that has made none, this is a
    retry, and its client sees `started` again. An event that covers the whole entry may leave its position out.
    """
    events = list(journal_pb2.JournalPayload.FromString(entry.payload).events)
    if entry.begin is not None:
        begin = entry.begin
        event = events[0] if events else common_pb2.Event(started=common_pb2.Started(worker=begin.worker))
        if begin.from_worker and not begin.line.begins_anew:
            event.taken_over.CopyFrom(common_pb2.TakenOver(worker=begin.worker, from_worker=begin.from_worker))
        events = [event]
    for event in events:
        event.epoch = entry.epoch
        if not event.position:
            event.position = entry.last
    return events
