"""What a reader does with what it is told. No I/O.

A reader holds a cursor, and the line it came along if it knows that. Events reach it live from a worker and from the
channel; each way may repeat, skip, or come from a worker that another has replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from streamway.journal.cursor import START, Cursor
from streamway.journal.entries import Kind
from streamway.journal.line import Line


class Verdict(Enum):
    """What becomes of an event."""

    DROP = "drop"  # the reader has it, or a newer call replaced its writer
    DELIVER = "deliver"  # it is the next one
    GAP = "gap"  # something is missing before it: read the channel


@dataclass(frozen=True, slots=True)
class Diverged:
    """The text shown beyond `at` is not part of the answer any more. The new text follows `at`, on `line`."""

    at: Cursor
    line: Line


class Merger:
    """One reader of one generation.

    Live events of one engine call may be merged differently from its entries only at borders of events: an event that
    covers both read and unread positions is taken for a gap, since a text cannot be cut.
    """

    __slots__ = ("_epoch", "_position", "line")

    def __init__(self, cursor: Cursor = START, line: Line | None = None) -> None:
        self._epoch, self._position = cursor
        self.line = line

    @property
    def cursor(self) -> Cursor:
        """The last position taken, and who wrote it."""
        return Cursor(self._epoch, self._position)

    def receive(self, epoch: int, first: int, last: int, line: Line | None = None) -> Verdict | Diverged:
        """Judges one event; on DELIVER the cursor moves to its end.

        `line` is the line of `epoch` where the sender says it, as every `begin` does; without it a higher epoch is a gap.
        `Diverged` moves nothing: tell the reader, then `restart`.
        """
        if epoch == self._epoch:
            if last <= self._position:
                return Verdict.DROP
            if first != self._position + 1:
                return Verdict.GAP
            self._position = last
            return Verdict.DELIVER
        if epoch < self._epoch:
            return Verdict.DROP
        if line is None:
            return Verdict.GAP
        if not follows(line, self.cursor):
            return Diverged(parting(self.cursor, self.line, line), line)
        if last <= self._position:
            return Verdict.DROP
        if first != self._position + 1:
            return Verdict.GAP
        self._epoch, self._position, self.line = epoch, last, line
        return Verdict.DELIVER

    def restart(self, diverged: Diverged) -> None:
        """Goes on from where the texts part."""
        self._epoch, self._position = diverged.at
        self.line = diverged.line


def follows(line: Line, cursor: Cursor) -> bool:
    """Whether what a reader at `cursor` has shown is part of the answer on `line`."""
    return cursor == START or line.holds(cursor.epoch, cursor.position)


def parting(cursor: Cursor, known: Line | None, line: Line) -> Cursor:
    """The last position of `line` that a reader at `cursor` is sure to have shown as it stands there.

    Exact when the reader's own line is known or its epoch is on the new one. Otherwise only what was written before any
    engine call is certain to be common.
    """
    position = 0
    for index, (epoch, _) in enumerate(line.segments):
        if epoch == cursor.epoch and index + 1 < len(line.segments):
            position = line.segments[index + 1][1] - 1
    if not position:
        position = known.parting(line) if known is not None else line.segments[0][1]
    position = min(position, cursor.position)
    return Cursor(line.owner(position), position) if position else START


class ChannelView(NamedTuple):
    """A channel as a reader finds it: the first position it still has, its newest entry, and the line of that one."""

    oldest: int
    tail: Cursor
    tail_kind: Kind
    line: Line

    @property
    def ended(self) -> bool:
        return self.tail_kind is Kind.END


@dataclass(frozen=True, slots=True)
class Continues:
    """The channel has what follows the cursor, on `line`; nothing yet when the cursor is the tail."""

    line: Line


@dataclass(frozen=True, slots=True)
class NotRecovered:
    """The channel does not hold what follows the cursor. `oldest`: the first position it has; None: there is no channel."""

    oldest: int | None


@dataclass(frozen=True, slots=True)
class Behind:
    """The channel ends before the cursor: the store lost its tail.

    The worker writes it again if it lives, so this is told to a client only when nothing runs; if `ended`, nothing does.
    """

    tail: Cursor
    ended: bool


Resumption = Continues | NotRecovered | Behind | Diverged


def judge(cursor: Cursor, view: ChannelView | None, known: Line | None = None) -> Resumption:
    """Whether a reader at `cursor` can go on from a channel. `known` is the line the reader came along."""
    if view is None:
        return NotRecovered(None)
    if cursor > view.tail:
        return Behind(view.tail, view.ended)
    if cursor.position + 1 < view.oldest:
        return NotRecovered(view.oldest)
    if not follows(view.line, cursor):
        return Diverged(parting(cursor, known, view.line), view.line)
    return Continues(view.line)
