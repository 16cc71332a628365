"""What becomes of a task copy whose holder is gone. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from streamway.journal.entries import Kind, Tail, attempt_of
from streamway.lanes.task import MOST_ATTEMPTS, TaskCopy

# Moves that are nobody's failure are bounded too: so many times as many attempts in all.
_MOVES: Final = 4


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
    """First add a copy with this attempt, so many of them excused, and a fresh ref; then acknowledge the old one."""

    attempt: int
    excused: int = 0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """As `Requeue`, but the task was delivered too often: it goes to the dead lane, and the generation ends with an error."""

    attempt: int


Fate = Drop | Requeue | GiveUp


def decide(copy: TaskCopy, tail: Tail | None, most_attempts: int = MOST_ATTEMPTS, *, planned: bool = False) -> Fate:
    """The fate of a copy, from the tail of its channel. `tail` None: there is no channel.

    A begin that names this copy's own ref is its lost holder's: the copy is then the only one, however high the attempt.
    What counts towards `most_attempts` is an engine call that began and came to nothing. A copy that was never begun lay with a
    worker that was stopped, slow or gone, and says nothing of the task; nor does a `planned` move.
    """
    if tail is None:
        return Drop(Why.NO_CHANNEL)
    if tail.entry.kind is Kind.END:
        return Drop(Why.ENDED)
    begun = attempt_of(tail.entry.epoch)
    if tail.begin is not None and begun >= copy.attempt and tail.begin.ref != copy.ref:
        return Drop(Why.STALE)
    attempt = max(begun, copy.attempt) + 1
    excused = copy.excused + (planned or begun < copy.attempt)
    if attempt - excused > most_attempts or attempt > _MOVES * most_attempts:
        return GiveUp(attempt)
    return Requeue(attempt, excused)
