"""Reading a channel from a cursor, in one round trip where nothing unusual has happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from streamway.journal.cursor import START, Cursor
from streamway.journal.entries import Entry, Kind, Tail, on_line, parse_entries
from streamway.journal.line import Line
from streamway.journal.merge import ChannelView, Continues, NotRecovered, Resumption, judge
from streamway.journal.packing import first_of, pack_look
from streamway.valkey import keys
from streamway.valkey.session import Session

_FIRST_ID: Final = b"0-1"


async def read_tail(session: Session, generation: str) -> Tail | None:
    """None: there is no channel. Raises LinkLost or StoreRefused."""
    newest = parse_entries(await session.call("XREVRANGE", keys.response(generation), "+", "-", "COUNT", 1))
    if not newest:
        return None
    entry = newest[0]
    if entry.epoch == 0 or entry.begin is not None:
        return Tail(entry, entry.begin)
    first = parse_entries(await session.call(*first_of(generation, entry.epoch)))
    return _tail(entry, first[0]) if first else None


class Read(NamedTuple):
    """What a channel has for a reader. `entries` only when it continues; `more`: they stop short of the tail.

    The first entry may begin at or before the cursor: a `Merger` drops the events the reader has. `oldest` is the first
    position the channel has, 0 where there is none. `newest` is its last entry; `worker` made the engine call that wrote that.
    """

    outcome: Resumption
    entries: list[Entry]
    tail: Cursor
    more: bool = False
    oldest: int = 0
    newest: Kind | None = None
    worker: str = ""


def judged(replies: Sequence[Any], cursor: Cursor, known: Line | None) -> Read | None:
    """What the answers to `packing.pack_look` mean. None: another engine call wrote the tail, whose begin they don't have.

    Raises ValueError for entries that are not ours.
    """
    newest = parse_entries(replies[0])
    if not newest:
        return Read(NotRecovered(None), [], START)
    entry, page, oldest_rows = newest[0], parse_entries(replies[2]), replies[1]
    if entry.epoch == 0 or entry.begin is not None:
        tail = Tail(entry, entry.begin)
    else:
        first = _first_in(oldest_rows, replies[3:], page, entry.epoch)
        if first is None:
            return None
        tail = _tail(entry, first)
    if oldest_rows and oldest_rows[0][0] == _FIRST_ID:
        oldest = 1
    else:
        left = parse_entries(oldest_rows)
        oldest = left[0].first if left else entry.first
    line, end = tail.line, entry.id
    outcome = judge(cursor, ChannelView(oldest, end, entry.kind, line), known)
    worker = tail.begin.worker if tail.begin is not None else ""
    if not isinstance(outcome, Continues):
        return Read(outcome, [], end, False, oldest, entry.kind, worker)
    reached = page[-1].id if page else end
    if reached > end:
        page = [each for each in page if each.id <= end]
        reached = page[-1].id if page else end
    return Read(outcome, on_line(page, line), reached, reached < end, oldest, entry.kind, worker)


async def read_channel(
    session: Session, generation: str, cursor: Cursor = START, known: Line | None = None, limit: int = 1_000
) -> Read:
    """What follows `cursor` on the answer's line, at most `limit` entries of the channel. Raises LinkLost or StoreRefused.

    `known` is the line the reader came along, if it knows. Entries of an epoch beyond where the next one starts are left
    out. Go on after `tail`; when nothing is new there, `Follower` tells what comes.
    """
    replies = await session.call_group(*pack_look(generation, cursor, limit))
    read = judged(replies, cursor, known)
    if read is not None:
        return read
    # Another call has begun. Its first entry never changes, so that it may be asked for now.
    newest = parse_entries(replies[0])[0]
    first = await session.call(*first_of(generation, newest.epoch))
    return judged([*replies[:3], first], cursor, known) or Read(NotRecovered(None), [], START)


def _first_in(oldest: Any, asked: Sequence[Any], page: list[Entry], epoch: int) -> Entry | None:
    """The first entry of an epoch, where it was asked for by itself, is among the channel's oldest, or is in the page."""
    wanted = b"%d-" % epoch
    for id_, fields in oldest or ():
        if id_.startswith(wanted):
            entry = Entry.parse(id_, fields)
            if entry.begin is not None:
                return entry
            break
    for rows in asked:
        for id_, fields in rows or ():
            if id_.startswith(wanted):
                return Entry.parse(id_, fields)
    return next((each for each in page if each.epoch == epoch and each.begin is not None), None)


def _tail(entry: Entry, first: Entry) -> Tail:
    if first.begin is not None:
        return Tail(entry, first.begin)
    return Tail(entry, None, Line(((entry.epoch, max(1, first.first - 1)),)))
