"""Cursors of clients that can carry only a position."""

from __future__ import annotations

from streamway.journal import START, Cursor, read_tail
from streamway.valkey.session import Session


async def cursor_at(session: Session, generation: str, position: int) -> Cursor:
    """The cursor of a position on the present answer, for surfaces whose cursor is an integer (`starting_after`).

    They lose one promise: after the store lost data they can't be told that the text before the cursor was another one.
    Without a channel the epoch is 0. Raises LinkLost or StoreRefused.
    """
    if position <= 0:
        return START
    tail = await read_tail(session, generation)
    return Cursor(tail.line.owner(position) if tail is not None else 0, position)
