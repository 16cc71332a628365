"""The window: what a worker has taken and not finished. It decides what the engine gets next.

              take                 start                   end
    lanes ───────────► waiting ───────────────► running ─────────► out
                          │ cancel, deadline       │ cancel, deadline
                          └───────────► out ◄──────┘

Waiting and running together never exceed slots + preload depth: what is beyond stays in the lanes, where another worker could
still get it.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["waiting", "running"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A task has come in. `rank` is its class, 0 the highest; `priority` −128 … 127, higher first.

    `expires_at` is when it leaves the queue unstarted, `deadline_at` when nobody wants it any more; both on the clock of `now`.
    """

    id: str
    rank: int
    priority: int
    expires_at: float
    deadline_at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The engine is done with a running task."""

    id: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A task is not wanted any more."""

    id: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The engine cannot take work, or can again. What runs goes on."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Taken | Ended | Withdrawn | Paused | Tick


@dataclass(frozen=True, slots=True)
class Start:
    """Give this task to the engine."""

    id: str


@dataclass(frozen=True, slots=True)
class Drop:
    """End a task for the reason given; `stage` is where it was. A running one must be aborted at the engine."""

    id: str
    stage: Stage
    reason: Literal["withdrawn", "deadline", "queue_timeout"]


Effect = Start | Drop


@dataclass(slots=True)
class _Entry:
    task: Taken
    # Place in the queue: class, then priority, then arrival.
    place: tuple[int, int, int]
    stage: Stage = "waiting"


@dataclass(slots=True)
class Window:
    """Holds at most `slots + preload_depth` tasks and starts at most `slots` of them.

    `receive` is given what happened and answers what to do. Order of starting: class, then priority, then arrival.
    """

    slots: int
    preload_depth: int
    _entries: dict[str, _Entry] = field(default_factory=dict)
    # Those that wait, in order.
    _queue: list[tuple[int, int, int, str]] = field(default_factory=list)
    _arrivals: int = 0
    _running: int = 0
    _reserved: int = 0
    _paused: bool = False

    @property
    def running(self) -> int:
        """Tasks the engine works on."""
        return self._running

    @property
    def waiting(self) -> int:
        """Tasks that wait for a slot."""
        return len(self._queue)

    @property
    def free(self) -> int:
        """Tasks that may still be taken; 0 while the engine cannot take work."""
        if self._paused:
            return 0
        return max(0, self.slots + self.preload_depth - len(self._entries))

    @property
    def unreserved(self) -> int:
        """Of that, what no read that is under way has set aside."""
        return max(0, self.free - self._reserved)

    def reserve(self, most: int) -> int:
        """Sets room aside for a read that is under way; returns how much. Give it back with `release`."""
        granted = min(most, self.unreserved)
        self._reserved += granted
        return granted

    def release(self, granted: int) -> None:
        """Gives reserved room back."""
        self._reserved -= granted

    def ahead_of_new(self, rank: int, priority: int) -> int:
        """Tasks that a new one of this class and priority would have to wait for: 0 while a slot is free."""
        if not self._paused and self._running < self.slots:
            return 0
        return self._running + bisect.bisect_right(self._queue, (rank, -priority, self._arrivals + 1, ""))

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Takes note of an event. Raises ValueError for a task that is already here."""
        effects: list[Effect] = []
        match event:
            case Taken():
                if event.id in self._entries:
                    raise ValueError(f"{event.id} is in the window already")
                self._arrivals += 1
                entry = _Entry(event, (event.rank, -event.priority, self._arrivals))
                self._entries[event.id] = entry
                bisect.insort(self._queue, (*entry.place, event.id))
            case Ended() | Withdrawn():
                stage = self._remove(event.id)
                if stage is not None and isinstance(event, Withdrawn):
                    effects.append(Drop(event.id, stage, "withdrawn"))
            case Paused():
                self._paused = event.yes
            case Tick():
                effects += self._expire(now)
        return effects + self._fill(now)

    def _remove(self, id_: str) -> Stage | None:
        entry = self._entries.pop(id_, None)
        if entry is None:
            return None
        if entry.stage == "running":
            self._running -= 1
        else:
            del self._queue[bisect.bisect_left(self._queue, (*entry.place, id_))]
        return entry.stage

    def _expire(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for id_, entry in list(self._entries.items()):
            reason = _late(entry, now)
            if reason is not None:
                self._remove(id_)
                effects.append(Drop(id_, entry.stage, reason))
        return effects

    def _fill(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._queue and self._running < self.slots and not self._paused:
            id_ = self._queue.pop(0)[-1]
            entry = self._entries[id_]
            reason = _late(entry, now)
            if reason is not None:
                del self._entries[id_]
                effects.append(Drop(id_, "waiting", reason))
                continue
            entry.stage = "running"
            self._running += 1
            effects.append(Start(id_))
        return effects


def _late(entry: _Entry, now: float) -> Literal["deadline", "queue_timeout"] | None:
    if now >= entry.task.deadline_at:
        return "deadline"
    if entry.stage == "waiting" and now >= entry.task.expires_at:
        return "queue_timeout"
    return None
