"""What becomes of a task copy whose holder is gone. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from streamway.journal.entries import Kind, Tail, attempt_of
from streamway.lanes.task import TaskCopy

# After this many deliveries a task goes to the dead lane instead of to another worker.
MOST_ATTEMPTS: Final = 3


class Why(Enum):
    """Why a copy has nothing left to do."""

    ENDED = "ended"
    NO_CHANNEL = "no_channel"
    STALE = "stale"  # another copy's holder has begun the same attempt or a later one


@dataclass(frozen=True, slots=True)
class Drop:
    """Acknowledge it."""

    why: Why


@dataclass(frozen=True, slots=True)
class Requeue:
    """First add a copy with this attempt and a fresh ref, then acknowledge the old one."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """As `Requeue`, but the task was delivered too often: it goes to the dead lane, and the generation ends with an error."""

    attempt: int


Fate = Drop | Requeue | GiveUp


def decide(copy: TaskCopy, tail: Tail | None, most_attempts: int = MOST_ATTEMPTS) -> Fate:
    """The fate of a copy, from the tail of its channel. `tail` None: there is no channel.

    A begin that names this copy's own ref is its lost holder's: the copy is then the only one, however high the attempt.
    """
    if tail is None:
        return Drop(Why.NO_CHANNEL)
    if tail.entry.kind is Kind.END:
        return Drop(Why.ENDED)
    begun = attempt_of(tail.entry.epoch)
    if tail.begin is not None and begun >= copy.attempt and tail.begin.ref != copy.ref:
        return Drop(Why.STALE)
    attempt = max(begun, copy.attempt) + 1
    return Requeue(attempt) if attempt <= most_attempts else GiveUp(attempt)
