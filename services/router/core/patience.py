"""When to stop asking a cache that does not answer in time."""

from __future__ import annotations


class Patience:
    """After `most_late` late answers in a row nothing is asked for `pause_s`; then one more late one pauses again."""

    def __init__(self, most_late: int = 5, pause_s: float = 1.0) -> None:
        self._most_late = most_late
        self._pause_s = pause_s
        self._late = 0
        self._until = 0.0

    def allows(self, now: float) -> bool:
        """It may be asked."""
        return now >= self._until

    def answered(self) -> None:
        """It answered in time."""
        self._late = 0

    def late(self, now: float) -> None:
        """It did not."""
        self._late += 1
        if self._late >= self._most_late:
            self._until = now + self._pause_s
