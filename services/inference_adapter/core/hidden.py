"""Tasks that are pending under this worker's name and that it has never seen: their reply was lost, or came too late.

Nobody else may take them while the worker lives, so it looks at its own pending tasks now and then. One that it does not
know may only just have ended, with its acknowledgement under way: it counts when it is there at two looks in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamway.lanes.task import TakenTask

LOOK_S: Final = 5.0


class HiddenTasks:
    """What the last look found."""

    def __init__(self) -> None:
        self._next_look = 0.0
        self._unknown: frozenset[tuple[str, str]] = frozenset()

    def due(self, now: float) -> bool:
        """Whether it is time for another look."""
        if not self._next_look:
            self._next_look = now + LOOK_S
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_S
        return True

    def confirmed(self, unknown: Sequence[TakenTask]) -> list[TakenTask]:
        """Those of the pending tasks the worker does not know that were there at the last look too."""
        before, self._unknown = self._unknown, frozenset((task.lane, task.entry) for task in unknown)
        return [task for task in unknown if (task.lane, task.entry) in before]
