"""The window: what a worker has taken and not finished. It decides what the engine gets next.

              take                 start                   end
    lanes ───────────► waiting ───────────────► running ─────────► out
                          │ cancel, deadline       │ cancel, deadline
                          ├───────────► out ◄──────┘
                          └─ waited too long ─► back to the pool, once

Who starts next, the first that there is:

1. *broken off*: interactive work that another worker had begun, by arrival, since its client has a text that stands still;
2. *bulk that is owed*: while interactive work starts, waiting bulk saves up a tenth of what is spent;
3. *urgent*: the highest priority at or above the threshold, by arrival; with 1 it alone starts in the last `ahead` slots;
4. *interactive*, by turns of the tenants (`fairness`);
5. *bulk*, by turns of the tenants.

What goes before its turn is paid for by its tenant all the same.

Each lane has `preload depth` places of its own beside the idle slots, so a full lane keeps nobody else's work out. What is
beyond stays in the lanes, where another worker could still get it.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from services.inference_adapter.core.fairness import DeficitRoundRobin, Waiting
from services.inference_adapter.core.preload import PreloadDepth
from services.inference_adapter.core.seat import Seat
from services.inference_adapter.core.tally import Tally
from services.inference_adapter.core.urgency import LOWEST, slots_kept, threshold
from services.inference_adapter.core.window_events import (
    Crowded,
    Drop,
    Effect,
    Ended,
    Event,
    Paused,
    Resized,
    Return,
    Start,
    Taken,
    Tick,
    Withdrawn,
)

BULK_SHARE: Final = 0.1
_BULK_PER_INTERACTIVE: Final = BULK_SHARE / (1 - BULK_SHARE)
# How often the threshold moves, in seconds.
THRESHOLD_TICK_S: Final = 0.005
_DEPTH_ROUND_S: Final = 1.0
# A slot that stands idle so long stood idle for want of work, not because taking it took long.
_READ_S: Final = 0.1


@dataclass(slots=True)
class Window:
    """Starts at most `slots` tasks at a time. `receive` is given what happened and answers what to do.

    `degrade_s`: a task that is not urgent and waited so long goes back to the pool, once; None: it stays. `ahead`: slots that are
    kept for urgent work, at most half of all.
    """

    slots: int
    preload: PreloadDepth
    degrade_s: float | None = None
    ahead: int = 0
    _entries: dict[str, Seat] = field(default_factory=dict)
    # Waiting interactive tasks by priority and arrival, beside their turns.
    _by_priority: list[tuple[int, int, str]] = field(default_factory=list)
    # Of these, what was broken off elsewhere, by arrival.
    _broken_off: dict[str, None] = field(default_factory=dict)
    _interactive: DeficitRoundRobin = field(default_factory=DeficitRoundRobin)
    _bulk: DeficitRoundRobin = field(default_factory=DeficitRoundRobin)
    _bulk_credit: float = 0.0
    _priorities: Tally[int] = field(default_factory=Tally)
    _running_priorities: Tally[int] = field(default_factory=Tally)
    _lanes: Tally[str] = field(default_factory=Tally)
    _reserved: Counter[str] = field(default_factory=Counter)
    _threshold: int = LOWEST
    _threshold_at: float = float("-inf")
    _settled_at: float = float("-inf")
    # When a slot was left with nothing to do last, and when anything happened last.
    _dry_at: float = float("-inf")
    _now: float = float("-inf")
    _arrivals: int = 0
    _running: int = 0
    _paused: bool = False
    _crowded: bool = False

    @property
    def running(self) -> int:
        """Tasks the engine works on."""
        return self._running

    @property
    def waiting(self) -> int:
        """Tasks that wait for a slot."""
        return len(self._entries) - self._running

    @property
    def running_lanes(self) -> Counter[str]:
        """Of those that run the ones of own lanes, by lane."""
        return Counter(seat.task.lane for seat in self._entries.values() if seat.task.own and seat.stage == "running")

    @property
    def urgent_from(self) -> int:
        """The priority from which on a task goes before everybody's turn, as of the last start or tick."""
        return self._threshold

    @property
    def free(self) -> int:
        """Tasks of one lane that may still be taken, before anything is set aside; 0 while the engine cannot take work."""
        if self._paused:
            return 0
        return max(0, self.slots + self.preload.value - len(self._entries))

    @property
    def unreserved(self) -> int:
        """Of that, what no read that is under way has set aside."""
        return max(0, self.free - self._reserved.total())

    @property
    def held(self) -> bool:
        """Nothing starts now. With the KV cache full one still does when nothing runs: what fills the cache is not ours then, or
        goes for it."""
        return self._paused or (self._crowded and self._running > 0)

    def room(self, lane: str, *, shared: bool = False) -> int:
        """Tasks that may be taken from a lane now: into idle slots and into its own places.

        Idle slots are offered to each of the worker's own lanes, since nobody else reads those; to a lane that others read too
        (`shared`) only what no other read may fill, and nothing while another worker would start it sooner.
        """
        if self._paused or (shared and self.held):
            return 0
        idle, mine = max(0, self.slots - len(self._entries)), self._reserved[lane]
        own_places = self.preload.value - self._lanes[lane] - max(0, mine - idle)
        return max(0, idle - (self._reserved.total() if shared else mine)) + max(0, own_places)

    def reserve(self, lane: str, *, shared: bool = False) -> int:
        """Sets the room of a lane aside for a read that is under way; returns how much. Give it back with `release`."""
        granted = self.room(lane, shared=shared)
        self._reserved[lane] += granted
        return granted

    def release(self, lane: str, granted: int) -> None:
        """Gives reserved room back."""
        self._reserved[lane] -= granted

    def took(self, tasks: int, room: int) -> None:
        """A read of a lane with room for `room` tasks has brought so many, and they are in.

        One that brought all it could has left some in the lane, more likely than not. After a rest that says nothing.
        """
        if tasks >= room > 0 and self._now - self._dry_at <= _READ_S:
            self.preload.starved()

    def ahead_of_new(self, rank: int, priority: int) -> int:
        """Tasks that a new one of this class and priority would have to wait for, at most: 0 while a slot is free."""
        urgent = rank == 0 and priority >= self._threshold
        if not self.held and self._running < self.slots - (0 if urgent else self._kept()):
            return 0
        if urgent:
            place = (-priority, self._arrivals + 1, "")
            beyond = sum(self._entries[id_].by_priority > place for id_ in self._broken_off)
            return self._running + bisect.bisect_right(self._by_priority, place) + beyond
        return self._running + (self.waiting if rank else len(self._by_priority))

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Takes note of an event at the monotonic second `now`. Raises ValueError for a task that is already here."""
        effects: list[Effect] = []
        self._now = now
        match event:
            case Taken():
                self._add(event, now)
            case Ended():
                self._end(event, now)
            case Withdrawn():
                entry = self._remove(event.id)
                if entry is not None:
                    effects.append(Drop(event.id, entry.stage, "withdrawn"))
            case Paused():
                self._paused = event.yes
            case Crowded():
                self._crowded = event.yes
            case Resized():
                self.slots = event.slots
            case Tick():
                effects += self._expire(now)
                if now - self._settled_at >= _DEPTH_ROUND_S:
                    self._settled_at = now
                    self.preload.settle()
        self._move_threshold(now)
        return effects + self._fill(now)

    def _add(self, task: Taken, now: float) -> None:
        if task.id in self._entries:
            raise ValueError(f"{task.id} is in the window already")
        self._arrivals += 1
        entry = Seat(task, Waiting((-task.priority, self._arrivals), task.id, task.cost), now)
        self._entries[task.id] = entry
        self._priorities[task.priority] += 1
        self._lanes[task.lane] += 1
        self._turns(task).add(task.tenant, task.weight, entry.place)
        if task.rank == 0:
            bisect.insort(self._by_priority, entry.by_priority)
            if task.broken_off:
                self._broken_off[task.id] = None

    def _end(self, event: Ended, now: float) -> None:
        entry = self._remove(event.id)
        if self._running == self.slots - 1 and not self.waiting:
            self._dry_at = now
        if entry is not None and entry.stage == "running" and event.used_tokens is not None:
            self._turns(entry.task).correct(entry.task.tenant, entry.task.cost, event.used_tokens)

    def _turns(self, task: Taken) -> DeficitRoundRobin:
        return self._interactive if task.rank == 0 else self._bulk

    def _remove(self, id_: str) -> Seat | None:
        entry = self._entries.pop(id_, None)
        if entry is None:
            return None
        self._priorities.less(entry.task.priority)
        if entry.stage == "running":
            self._running -= 1
            self._running_priorities.less(entry.task.priority)
        else:
            self._turns(entry.task).remove(entry.task.tenant, entry.place)
            self._unqueue(entry)
        return entry

    def _unqueue(self, entry: Seat) -> None:
        """It waits no longer; it is out of its turns already."""
        self._lanes.less(entry.task.lane)
        if entry.task.rank == 0:
            del self._by_priority[bisect.bisect_left(self._by_priority, entry.by_priority)]
            self._broken_off.pop(entry.task.id, None)

    def _expire(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for id_, entry in list(self._entries.items()):
            reason = entry.late(now)
            if reason is not None:
                self._remove(id_)
                effects.append(Drop(id_, entry.stage, reason))
            elif entry.may_go_back(now, self._threshold, self.degrade_s):
                self._remove(id_)
                effects.append(Return(id_))
        return effects

    def _move_threshold(self, now: float) -> None:
        if now - self._threshold_at >= THRESHOLD_TICK_S:
            self._threshold_at = now
            self._threshold = threshold(self._priorities, self.slots)

    def _fill(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._running < self.slots and not self.held:
            id_ = self._next()
            if id_ is None:
                break
            entry = self._entries[id_]
            self._unqueue(entry)
            reason = entry.too_late_to_start(now)
            if reason is not None:
                del self._entries[id_]
                self._priorities.less(entry.task.priority)
                self._turns(entry.task).correct(entry.task.tenant, entry.task.cost, 0)
                effects.append(Drop(id_, "waiting", reason))
                continue
            entry.stage = "running"
            self._running += 1
            self._running_priorities[entry.task.priority] += 1
            self.preload.waited(self.waiting)
            effects.append(Start(id_))
        return effects

    def _next(self) -> str | None:
        """Which task starts, already out of its turns and paid for."""
        if self._broken_off:
            return self._before_its_turn(next(iter(self._broken_off)))
        anybody = self._running < self.slots - self._kept()
        owed = self._bulk.peek() if anybody and self._bulk_credit > 0 else None
        if owed is not None and self._by_priority and self._bulk_credit >= owed.cost:
            return self._start_bulk()
        if self._by_priority:
            head = self._entries[self._by_priority[0][-1]]
            if head.task.priority >= self._threshold:
                return self._before_its_turn(head.task.id)
        if not anybody:
            return None
        if self._by_priority:
            found = self._interactive.next()
            assert found is not None, "what is in one is in the other"
            return self._spent(found[1])
        return self._start_bulk()

    def _before_its_turn(self, id_: str) -> str:
        entry = self._entries[id_]
        self._interactive.take(entry.task.tenant, entry.place)
        return self._spent(entry.place)

    def _kept(self) -> int:
        return slots_kept(min(self.ahead, self.slots // 2), self._running_priorities, self._threshold)

    def _spent(self, task: Waiting) -> str:
        """Interactive work starts; bulk that waits saves up."""
        if len(self._bulk):
            self._bulk_credit += _BULK_PER_INTERACTIVE * task.cost
        return task.id

    def _start_bulk(self) -> str | None:
        found = self._bulk.next()
        if found is None:
            self._bulk_credit = 0.0
            return None
        self._bulk_credit = max(0.0, self._bulk_credit - found[1].cost)
        return found[1].id
