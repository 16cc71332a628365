"""Reading a channel from a cursor."""

from __future__ import annotations

from typing import NamedTuple

from streamway.journal.cursor import START, Cursor
from streamway.journal.entries import Entry, Tail, on_line, parse_entries
from streamway.journal.line import Line
from streamway.journal.merge import ChannelView, Continues, Resumption, judge
from streamway.valkey import keys
from streamway.valkey.session import Session


async def read_tail(session: Session, generation: str) -> Tail | None:
    """None: there is no channel. Raises LinkLost or StoreRefused."""
    key = keys.response(generation)
    newest = parse_entries(await session.call("XREVRANGE", key, "+", "-", "COUNT", 1))
    if not newest:
        return None
    entry = newest[0]
    if entry.epoch == 0 or entry.begin is not None:
        return Tail(entry, entry.begin)
    # The first entry of an epoch is its begin, unless somebody trimmed the channel.
    first = parse_entries(await session.call("XRANGE", key, entry.epoch, entry.epoch, "COUNT", 1))
    if not first:
        return None
    return Tail(entry, first[0].begin, Line(((entry.epoch, max(1, first[0].first - 1)),)))


class Read(NamedTuple):
    """What a channel has for a reader. `entries` only when it continues; `more`: they stop short of the tail.

    The first entry may begin at or before the cursor: a `Merger` drops the events the reader has. `oldest` is the first
    position the channel has, 0 where there is none.
    """

    outcome: Resumption
    entries: list[Entry]
    tail: Cursor
    more: bool = False
    oldest: int = 0


async def read_channel(
    session: Session, generation: str, cursor: Cursor = START, known: Line | None = None, limit: int = 1_000
) -> Read:
    """What follows `cursor` on the answer's line, at most `limit` entries of the channel. Raises LinkLost or StoreRefused.

    `known` is the line the reader came along, if it knows. Entries of an epoch beyond where the next one starts are left
    out. Go on after `tail`; when nothing is new there, `Follower` tells what comes.
    """
    key = keys.response(generation)
    tail = await read_tail(session, generation)
    view = None
    if tail is not None:
        oldest = parse_entries(await session.call("XRANGE", key, "-", "+", "COUNT", 1))
        first = oldest[0].first if oldest else tail.entry.first
        view = ChannelView(first, tail.entry.id, tail.entry.kind, tail.line)
    outcome = judge(cursor, view, known)
    if view is None or not isinstance(outcome, Continues):
        return Read(outcome, [], view.tail if view else START, oldest=view.oldest if view else 0)
    after = f"({cursor}" if cursor != START else "-"
    entries = parse_entries(await session.call("XRANGE", key, after, str(view.tail), "COUNT", limit))
    reached = entries[-1].id if entries else view.tail
    return Read(outcome, on_line(entries, view.line), reached, reached < view.tail, view.oldest)
