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

from typing import Final, NamedTuple, TypeAlias

from streamway.valkey.keys import CLASSES, TaskClass

Lanes: TypeAlias = tuple[int, int, int, int]
"""A number for each kind of lane, in the order of `CLASSES`."""

NO_TASKS: Final[Lanes] = (0, 0, 0, 0)
NO_LANE: Final[frozenset[TaskClass]] = frozenset()
EVERY_LANE: Final[frozenset[TaskClass]] = frozenset(CLASSES)


class Queues(NamedTuple):
    """`waiting` tasks of each lane, and how many slots are idle: then nothing waits."""

    waiting: Lanes
    idle: int

    @classmethod
    def of(cls, tasks: Lanes, running: Lanes, busy: int, slots: int) -> Queues:
        """`tasks` are all of each lane; `running` those of them that run, `busy` all that runs there, as the worker says.

        Whatever it says, no more than `slots` of them count as running: one that lies cannot have a queue without an end.
        """
        free = slots - min(slots, max(0, busy - sum(running)))
        there = sum(tasks)
        if there <= free:
            return cls(NO_TASKS, free - there)
        left = list(tasks)
        # First those that are said to run, then the highest lanes.
        for most in (running, tasks):
            for lane, number in enumerate(left):
                starts = min(number, most[lane], free)
                left[lane] = number - starts
                free -= starts
        gold, silver, bronze, bulk = left
        return cls((gold, silver, bronze, bulk), 0)

    def full(self, limit: int) -> frozenset[TaskClass]:
        """Lanes in which `limit` tasks or more wait; none while a slot is idle."""
        if self.idle or max(self.waiting) < limit:
            return NO_LANE
        return frozenset([lane for lane, waiting in zip(CLASSES, self.waiting, strict=True) if waiting >= limit])
