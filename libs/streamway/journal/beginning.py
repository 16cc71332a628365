"""Beginning an engine call: fence whoever wrote before, then read what they wrote.

In this order. Read first, and the old writer may add to what was read.
"""

from __future__ import annotations

from collections.abc import Callable

from streamway.journal import functions
from streamway.journal.begun import Begun
from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry, on_line, parse_entries
from streamway.journal.functions import Began, Done, Gone, NeverBegan, Stale
from streamway.journal.signals import Place
from streamway.journal.writing import has_ref
from streamway.lanes.task import TaskCopy
from streamway.valkey import keys
from streamway.valkey.session import LinkLost, Session, Sessions

Beaten = Done | Gone | Stale


async def begin_call(
    sessions: Sessions,
    copy: TaskCopy,
    place: Place,
    worker: str,
    payload: bytes,
    new_epoch: Callable[[int], int],
    ttl_ms: int = 600_000,
) -> tuple[Begun, Session] | Beaten:
    """Begins an engine call for a task copy. Goes on over lost connections until the store has answered.

    With `Begun` comes the session on which it was read: write on that one, or go into doubt. Any other answer means the
    copy has nothing to run: settle it (`Reclaimer.settle`). Each engine call has an epoch of its own, never used again.
    Raises StoreRefused when the store can't take the entry, for instance for want of memory.
    """
    epoch, again = new_epoch(copy.attempt), False
    while True:
        session = await sessions.session()
        try:
            # The copy first: a begin that names a copy which is not there would make every other copy look stale.
            place = await ensure_copy(session, copy, place)
            answer = await functions.begin(
                session, copy.generation, epoch, copy.ref, worker, payload, again=again, ttl_ms=ttl_ms
            )
            if isinstance(answer, Began):
                entries = await read_until(session, copy.generation, Cursor(epoch, answer.start))
            elif not isinstance(answer, NeverBegan):
                return answer
        except LinkLost:
            again = True
            continue
        if isinstance(answer, Began) and entries and entries[-1].id == Cursor(epoch, answer.start):
            return Begun(copy, place, tuple(on_line(entries[:-1], answer.line)), entries[-1]), session
        # The store lost the begin. A reader may have seen it, so this epoch can't start anywhere else.
        epoch, again = new_epoch(copy.attempt), False


async def ensure_copy(session: Session, copy: TaskCopy, place: Place) -> Place:
    """Where a task copy lies; adds it again, as it was, if the store lost it between its reading and this session.

    An entry with the same id but another ref is another copy.
    """
    reply = await session.call("XRANGE", place.lane, place.entry, place.entry)
    if has_ref(reply, copy.ref):
        return place
    fields = [part for pair in copy.fields().items() for part in pair]
    return Place(place.lane, (await session.call("XADD", place.lane, "*", *fields)).decode())


async def read_until(session: Session, generation: str, last: Cursor) -> list[Entry]:
    """All entries of a channel up to an id."""
    return parse_entries(await session.call("XRANGE", keys.response(generation), "-", str(last)))
