"""An answer that is there before the engine call has made a token, written into the channel past the worker.

      0-1         accepted
      1048999-2   begin     a worker's; it may also not have begun yet
      2097777-3   begin     ours: fences the worker
      2097777-41  tokens    the whole answer
      2097777-42  end

All of it is one step, and only if the tail still is the entry that was read: so the first token or this, never both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from streamway.journal.entries import Begin, Entry, Kind, Tail, attempt_of, encode_events
from streamway.journal.functions import restore
from streamway.journal.reading import read_tail
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.session import Reply, Session

# A worker begins, and perhaps another one once or twice: more often the tail does not change before a token.
_MOST_LOOKS: Final = 8


def room_for_answer(tail: Tail) -> int | None:
    """The position of our begin; None where a token is there already, or the end."""
    entry = tail.entry
    if entry.kind is Kind.ACCEPTED:
        return entry.last + 1
    if entry.begin is not None and entry.begin.line.begins_anew:
        return entry.last + 1
    return None


def answer_entries(epoch: int, begin: Begin, told: Sequence[common_pb2.Event]) -> list[Entry]:
    """What is written. `told`: the event of the begin, the pieces, the end; they have their positions."""
    first, *pieces, end = told
    start = first.position
    entries = [Entry(epoch, start, start, Kind.BEGIN, encode_events([first]), begin)]
    if pieces:
        last = pieces[-1].position
        entries.append(Entry(epoch, start + 1, last, Kind.TOKENS, encode_events(pieces)))
    entries.append(Entry(epoch, end.position, end.position, Kind.END, encode_events([end])))
    return entries


async def overtake(
    session: Session,
    generation: str,
    ref: str,
    by: str,
    new_epoch: Callable[[int], int],
    told_from: Callable[[int], Sequence[common_pb2.Event]],
    ttl_ms: int,
) -> bool:
    """Answers a generation in its channel; False: a worker's first token was quicker, or it has ended, or there is no channel.

    `ref` is unique to this answer: asked again with it after a lost reply, this knows what it has written. `told_from` makes
    the events from a position on, `by` is the process that does it. Raises LinkLost or StoreRefused.
    """
    key = keys.response(generation)
    for _ in range(_MOST_LOOKS):
        tail = await read_tail(session, generation)
        if tail is None:
            return False
        if tail.begin is not None and tail.begin.ref == ref:
            return True
        start = room_for_answer(tail)
        if start is None:
            return False
        epoch = new_epoch(attempt_of(tail.entry.epoch) + 1)
        worker = tail.begin.worker if tail.begin is not None else ""
        begin = Begin(ref, by, tail.line.extend(epoch, start), worker)
        if await restore(session, generation, tail.entry.id, answer_entries(epoch, begin, told_from(start))):
            session.send(("PEXPIRE", key, ttl_ms), _ignore)
            return True
    return False


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""
