"""How many workers there should be: what an autoscaler, or a person, goes by."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from services.router.core.worker import Worker

_MORE: Final = 2
# Of the most there may be the last tenth is for what people start themselves.
_SHARE: Final = 0.9


class Wanted:
    """Two more than there were when the first one came short of memory, until none is. `most`: how many there may be; 0: not
    known. Never fewer than there are: this asks for workers, it sends none away."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._before: int | None = None

    def look(self, workers: Collection[Worker]) -> int:
        """How many there should be now."""
        there = len(workers)
        if not any(worker.memory_pressed for worker in workers):
            self._before = None
            return there
        if self._before is None:
            self._before = there
        wanted = self._before + _MORE
        if self._most:
            wanted = min(wanted, int(self._most * _SHARE))
        return max(there, wanted)
