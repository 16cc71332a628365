"""What lies in a lane: a small pointer; the request itself is in the generation's record."""

from __future__ import annotations

from dataclasses import dataclass

from streamway.valkey.keys import TaskClass


@dataclass(frozen=True, slots=True)
class TaskCopy:
    """One copy of a task.

    `attempt` counts engine calls from 1; `ref` is a random id of this copy, independent of its place in a lane.
    """

    generation: str
    attempt: int
    ref: str

    def fields(self) -> dict[str, str | int]:
        """The stream entry."""
        return {"generation": self.generation, "attempt": self.attempt, "ref": self.ref}

    @classmethod
    def parse(cls, fields: dict[bytes, bytes]) -> TaskCopy:
        """Reads a stream entry. Raises ValueError or KeyError when it is not one of ours."""
        return cls(fields[b"generation"].decode(), int(fields[b"attempt"]), fields[b"ref"].decode())


@dataclass(frozen=True, slots=True)
class TakenTask:
    """A copy that this worker has read: pending under its name until it is finished."""

    copy: TaskCopy
    lane: str
    entry: str
    class_: TaskClass
