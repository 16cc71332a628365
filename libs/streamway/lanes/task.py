"""What lies in a lane: a small pointer; the request itself is in the generation's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from streamway.valkey.keys import TaskClass

# After this many engine calls that began and came to nothing a task goes to the dead lane instead of to another worker.
MOST_ATTEMPTS: Final = 3


class EarlierCall(NamedTuple):
    """An engine call that made no token. `epoch` 0: its readers were told nothing of it."""

    worker: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TaskCopy:
    """One copy of a task.

    `attempt` counts from 1 how often the task was handed on; `excused` of these were nobody's failure: a planned move, or a
    copy that was never begun. `ref` is a random id of this copy, independent of its place in a lane. `degraded`: it has waited
    too long at one worker and may be taken by any. `before`: the calls of earlier attempts, where no channel says it.
    """

    generation: str
    attempt: int
    ref: str
    excused: int = 0
    degraded: bool = False
    before: tuple[EarlierCall, ...] = ()

    @property
    def failures(self) -> int:
        """Engine calls that began and did not end it, before this copy."""
        return self.attempt - 1 - self.excused

    def fields(self) -> dict[str, str | int]:
        """The stream entry."""
        fields: dict[str, str | int] = {"generation": self.generation, "attempt": self.attempt, "ref": self.ref}
        if self.excused:
            fields["excused"] = self.excused
        if self.degraded:
            fields["degraded"] = 1
        if self.before:
            fields["before"] = ",".join(f"{call.worker}:{call.epoch}" for call in self.before)
        return fields

    @classmethod
    def parse(cls, fields: dict[bytes, bytes]) -> TaskCopy:
        """Reads a stream entry. Raises ValueError or KeyError when it is not one of ours."""
        excused = int(fields.get(b"excused", 0))
        return cls(
            fields[b"generation"].decode(),
            int(fields[b"attempt"]),
            fields[b"ref"].decode(),
            excused,
            fields.get(b"degraded") == b"1",
            tuple(_earlier(part) for part in fields[b"before"].decode().split(",")) if b"before" in fields else (),
        )


def _earlier(text: str) -> EarlierCall:
    worker, _, epoch = text.rpartition(":")
    return EarlierCall(worker, int(epoch))


@dataclass(frozen=True, slots=True)
class TakenTask:
    """A copy that this worker has read: pending under its name until it is finished."""

    copy: TaskCopy
    lane: str
    entry: str
    class_: TaskClass
