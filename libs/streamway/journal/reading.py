"""Reading a channel from a cursor, in one round trip where nothing unusual has happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import hiredis

from streamway.journal.cursor import START, Cursor
from streamway.journal.entries import Entry, Kind, Tail, attempt_of, on_line, parse_entries
from streamway.journal.line import Line
from streamway.journal.merge import ChannelView, Continues, NotRecovered, Resumption, judge
from streamway.valkey import keys
from streamway.valkey.session import Argument, Reply, Session, StoreRefused

Command = tuple[Argument, ...]
_FIRST_ID: Final = b"0-1"


async def read_tail(session: Session, generation: str) -> Tail | None:
    """None: there is no channel. Raises LinkLost or StoreRefused."""
    newest = parse_entries(await session.call("XREVRANGE", keys.response(generation), "+", "-", "COUNT", 1))
    if not newest:
        return None
    entry = newest[0]
    if entry.epoch == 0 or entry.begin is not None:
        return Tail(entry, entry.begin)
    first = parse_entries(await session.call(*_first_of(generation, entry.epoch)))
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


def questions(generation: str, cursor: Cursor, limit: int) -> list[Command]:
    """What must be asked of the channel in this order, in one write, for `judged`; `limit` is that of the page.

    The tail comes first: what is appended between two of these is beyond it, and is left out. The line is in the begin of the
    tail's epoch: behind `accepted` where there was one engine call, else most likely that of the cursor's.
    """
    key = keys.response(generation)
    asked: list[Command] = [
        ("XREVRANGE", key, "+", "-", "COUNT", 1),
        ("XRANGE", key, "-", "+", "COUNT", 2),
        ("XRANGE", key, f"({cursor}" if cursor != START else "-", "+", "COUNT", limit),
    ]
    if attempt_of(cursor.epoch) > 1:
        asked.append(_first_of(generation, cursor.epoch))
    return asked


def judged(replies: Sequence[Any], cursor: Cursor, known: Line | None) -> Read | None:
    """What the answers to `questions` mean. None: another engine call wrote the tail, whose begin they don't have.

    Raises ValueError for entries that are not ours.
    """
    newest = parse_entries(replies[0])
    if not newest:
        return Read(NotRecovered(None), [], START)
    entry, page = newest[0], parse_entries(replies[2])
    if entry.epoch == 0 or entry.begin is not None:
        tail = Tail(entry, entry.begin)
    else:
        first = _first_in([*replies[3:], replies[1]], page, entry.epoch)
        if first is None:
            return None
        tail = _tail(entry, first)
    oldest = 1 if replies[1] and replies[1][0][0] == _FIRST_ID else 0
    if not oldest:
        left = parse_entries(replies[1])
        oldest = left[0].first if left else entry.first
    view = ChannelView(oldest, entry.id, entry.kind, tail.line)
    outcome = judge(cursor, view, known)
    worker = tail.begin.worker if tail.begin is not None else ""
    if not isinstance(outcome, Continues):
        return Read(outcome, [], view.tail, False, oldest, entry.kind, worker)
    if page and page[-1].id > view.tail:
        page = [each for each in page if each.id <= view.tail]
    reached = page[-1].id if page else view.tail
    return Read(outcome, on_line(page, view.line), reached, reached < view.tail, oldest, entry.kind, worker)


async def read_channel(
    session: Session, generation: str, cursor: Cursor = START, known: Line | None = None, limit: int = 1_000
) -> Read:
    """What follows `cursor` on the answer's line, at most `limit` entries of the channel. Raises LinkLost or StoreRefused.

    `known` is the line the reader came along, if it knows. Entries of an epoch beyond where the next one starts are left
    out. Go on after `tail`; when nothing is new there, `Follower` tells what comes.
    """
    *others, last = questions(generation, cursor, limit)
    replies: list[Reply] = []
    for command in others:
        session.send(command, replies.append)
    replies.append(await session.call(*last))
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise StoreRefused(str(reply))
    read = judged(replies, cursor, known)
    if read is not None:
        return read
    # Another call has begun. Its first entry never changes, so that it may be asked for now.
    newest = parse_entries(replies[0])[0]
    first = await session.call(*_first_of(generation, newest.epoch))
    return judged([*replies[:3], first], cursor, known) or Read(NotRecovered(None), [], START)


def _first_of(generation: str, epoch: int) -> Command:
    """The first entry of an epoch is its begin, unless somebody trimmed the channel."""
    return ("XRANGE", keys.response(generation), epoch, epoch, "COUNT", 1)


def _first_in(replies: Sequence[Any], page: list[Entry], epoch: int) -> Entry | None:
    """The first entry of an epoch, where it was asked for by itself, is the channel's second, or is in the page."""
    wanted = b"%d-" % epoch
    for asked in replies:
        for id_, fields in asked or ():
            if id_.startswith(wanted):
                entry = Entry.parse(id_, fields)
                return entry if entry.begin is not None or asked is not replies[-1] else None
    return next((each for each in page if each.epoch == epoch and each.begin is not None), None)


def _tail(entry: Entry, first: Entry) -> Tail:
    if first.begin is not None:
        return Tail(entry, first.begin)
    return Tail(entry, None, Line(((entry.epoch, max(1, first.first - 1)),)))
