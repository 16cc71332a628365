"""What waits in each lane of a worker, and which lanes take nothing more.

How many tasks a lane has the router counts itself. Which of them run is known from the worker's last report, up to a second
old; since it keeps its slots in use, what has ended meanwhile has made room for others:

    lane      gold   silver  bronze  bulk
    tasks      9       3       4      2      slots 8, of which 1 runs what came past the lanes
    run        3       2       1      0      as reported: 1 of 8 slots is free by now
    start      1       0       0      0      the highest lane gets it
    wait       5       1       3      2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from streamway.valkey.keys import CLASSES, TaskClass

Lanes: TypeAlias = tuple[int, int, int, int]
"""A number for each kind of lane, in the order of `CLASSES`."""

NO_TASKS: Final[Lanes] = (0, 0, 0, 0)
NO_LANE: Final[frozenset[TaskClass]] = frozenset()
EVERY_LANE: Final[frozenset[TaskClass]] = frozenset(CLASSES)


@dataclass(frozen=True, slots=True)
class Queues:
    """`waiting` tasks of each lane, and how many slots are idle: then nothing waits."""

    waiting: Lanes
    idle: int

    @classmethod
    def of(cls, tasks: Lanes, running: Lanes, busy: int, slots: int) -> Queues:
        """`tasks` are all of each lane; `running` those of them that run, `busy` all that runs there, as the worker says.

        Whatever it says, no more than `slots` of them count as running: one that lies cannot have a queue without an end.
        """
        past_lanes = min(slots, max(0, busy - sum(running)))
        free, running_now = slots - past_lanes, []
        for there, said in zip(tasks, running, strict=True):
            running_now.append(min(there, said, free))
            free -= running_now[-1]
        waiting = []
        for there, run in zip(tasks, running_now, strict=True):
            start = min(there - run, free)
            free -= start
            waiting.append(there - run - start)
        gold, silver, bronze, bulk = waiting
        return cls((gold, silver, bronze, bulk), free)

    def full(self, limit: int) -> frozenset[TaskClass]:
        """Lanes in which `limit` tasks or more wait; none while a slot is idle."""
        if self.idle:
            return NO_LANE
        return frozenset(lane for lane, waiting in zip(CLASSES, self.waiting, strict=True) if waiting >= limit)
