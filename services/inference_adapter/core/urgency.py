"""From which priority on a task goes before everybody's turn.

The idea of the threshold: urgent work may have most of the slots but not all, so nobody who calls everything urgent can shut
the others out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOWEST: Final = -128
HIGHEST: Final = 127
NOBODY: Final = HIGHEST + 1
# The part of the slots that urgent tasks may fill.
URGENT_SHARE: Final = 0.8


def urgent_slots(slots: int) -> int:
    """How many of the slots urgent tasks may fill: one at least."""
    return max(1, int(URGENT_SHARE * slots))


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
