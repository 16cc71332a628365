"""What the channel machine (`channel.py`) is told, and what it asks for.

The events of the hot path are an `Entry` and `APPENDED`; its effects `Write` and `Confirmed` are tuples because those are
the cheapest objects Python makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry
from streamway.lanes.task import TaskCopy


class StopReason(Enum):
    """Why a call may write no more."""

    FENCED = "fenced"  # another call has begun
    EXPIRED = "expired"  # there is no channel
    LOST = "lost"  # the store lost more than this call still keeps
    ENDED = "ended"  # the store lost this call's begin, and the call it had fenced ended the generation


class Place(NamedTuple):
    """Where a task copy lies."""

    lane: str
    entry: str


# --- Events. An `Entry` is one too: a flush of the engine call, to be written.


@dataclass(frozen=True, slots=True)
class Appended:
    """The store took the oldest append that was not answered."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It refused it: the id is not above the tail, or there is no channel."""


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """It could not take it now: out of memory, loading, read-only."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection broke."""


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a connection."""


@dataclass(frozen=True, slots=True)
class TailRead:
    """The id of the channel's newest entry, and whether it is an end. `tail` None: there is no channel."""

    tail: Cursor | None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class CopyRead:
    """Whether the task copy is still in its lane."""

    found: bool


@dataclass(frozen=True, slots=True)
class CopyAdded:
    """The task copy is in its lane again, as this entry."""

    entry: str


@dataclass(frozen=True, slots=True)
class CopySeen:
    """The worker read a copy with this call's ref from a lane: one more to acknowledge."""

    place: Place


@dataclass(frozen=True, slots=True)
class ChannelRead:
    """The ids of all entries of the channel, in order, and whether the last is an end."""

    ids: Sequence[Cursor]
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """Whether the missing entries were written; False: the tail had moved."""

    done: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The task copies are acknowledged and deleted."""


@dataclass(frozen=True, slots=True)
class StepFailed:
    """The store could not do another step that was asked for."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes."""


APPENDED: Final = Appended()

Event = (
    Entry
    | Appended
    | Refused
    | AppendFailed
    | Lost
    | Connected
    | TailRead
    | CopyRead
    | CopyAdded
    | CopySeen
    | ChannelRead
    | Restored
    | Acknowledged
    | StepFailed
    | Tick
)


# --- Effects.


class Write(NamedTuple):
    """Append these, each under its id, without making the channel."""

    entries: Sequence[Entry]


class Confirmed(NamedTuple):
    """Everything up to this position is in the channel: it may be delivered."""

    position: int


@dataclass(frozen=True, slots=True)
class ReadTail:
    """Read the channel's newest entry."""


@dataclass(frozen=True, slots=True)
class ReadCopy:
    """Look for the task copy at its place; another copy that got the same entry id does not count."""

    place: Place
    ref: str


@dataclass(frozen=True, slots=True)
class AddCopy:
    """Add the task copy to its lane again, as it was."""

    lane: str
    copy: TaskCopy


@dataclass(frozen=True, slots=True)
class ReadChannel:
    """Read the ids of the whole channel."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Write these in order if the newest entry still is `expected`, in one step."""

    expected: Cursor
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Expire:
    """Set the channel's time to live. Needs no answer."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge and delete the task copies, in one step for each lane."""

    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class ConnectLater:
    """Send `Connected` after a while, unless the connection breaks before."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Entries wait and the store has confirmed nothing for 50 ms. `position`: the last it confirmed. Once a silence."""

    position: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the engine and write nothing more; then settle the task copies as a reclaimer would."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class Finished:
    """The end is confirmed and the task copies are acknowledged."""


Effect = (
    Write
    | Confirmed
    | ReadTail
    | ReadCopy
    | AddCopy
    | ReadChannel
    | Restore
    | Expire
    | Acknowledge
    | ConnectLater
    | Unanswered
    | Stop
    | Finished
)
