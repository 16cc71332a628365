"""From which priority on a task goes before everybody's turn, and what is kept free for it.

The idea of the threshold: urgent work may have most of the slots but not all, so nobody who calls everything urgent can shut
the others out. The idea of slots ahead: whoever goes first still waits for the next slot that comes free, unless one is free
(docs/adr/0039-a-slot-ahead.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

LOWEST: Final = -128
HIGHEST: Final = 127
NOBODY: Final = HIGHEST + 1
# The part of the slots that urgent tasks may fill.
URGENT_SHARE: Final = 0.8


def urgent_slots(slots: int) -> int:
    """How many of the slots urgent tasks may fill: one at least."""
    return max(1, int(URGENT_SHARE * slots))


def slots_ahead(slots: int) -> int:
    """How many slots a worker keeps ahead where nobody says: two, and never more than an eighth."""
    return min(2, slots // 8)


def slots_kept(ahead: int, running: Iterable[int], threshold_: int) -> int:
    """How many of `ahead` slots only urgent work may start in now: none while there is room for all, and none for urgent work
    that does not come. `running`: the priorities of what runs; bulk, below 0, is never urgent."""
    if not ahead or threshold_ == LOWEST:
        return 0
    return ahead if any(priority >= max(threshold_, 0) for priority in running) else 0


def threshold(tasks: Mapping[int, int], slots: int) -> int:
    """The lowest priority such that what has it or a higher one fills at most 80 % of the slots.

    `tasks` counts all that are here by priority, running and waiting. With room for all of them it is −128; 128 when even the
    highest priority is too common.
    """
    room = urgent_slots(slots)
    for priority in sorted(tasks, reverse=True):
        room -= tasks[priority]
        if room < 0:
            return priority + 1
    return LOWEST
