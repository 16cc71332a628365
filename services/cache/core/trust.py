"""How far a single entry is trusted: it is compared before it has answered often, and each time once it was wrong.

Wrong answers come in bursts from one entry: it is near to a question that many ask, and answers another one. So an entry is
served `FIRST` times without a comparison, and twice as often after each one that was right; then it is compared for certain. One
that was wrong more often than right is compared each time. A comparison on a miss, below the threshold, says as much here as an
audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from streamway.runtime.recent import Recent

# Answers of an entry that nobody has compared yet, before it is compared for certain.
FIRST: Final = 2
# Comparisons that were right or wrong beyond so many change nothing more.
_MOST_RIGHT: Final = 5
_MOST_WRONG: Final = 8
_MOST_ENTRIES: Final = 10_000
# Of them, those that outlive the process.
_MOST_KEPT: Final = 2_000


class Trusted(NamedTuple):
    """`score`: comparisons that were right, less those that were wrong. `unchecked`: answers since the last one."""

    score: int
    unchecked: int

    @property
    def is_due(self) -> bool:
        """It is to be compared for certain."""
        return self.score < 0 or self.unchecked >= FIRST << self.score


_NEW: Final = Trusted(0, 0)


class Trust:
    """Of one tenant's entries; bounded, and what is not known is new."""

    def __init__(self) -> None:
        self._entries: Recent[str, Trusted] = Recent(_MOST_ENTRIES)

    def is_due(self, entry: str) -> bool:
        """It is to be compared in place of being served."""
        return (self._entries.get(entry) or _NEW).is_due

    def served(self, entry: str) -> None:
        """It answered without a comparison."""
        score, unchecked = self._entries.get(entry) or _NEW
        self._entries.put(entry, Trusted(score, unchecked + 1))

    def compared(self, entry: str, right: bool) -> None:
        """A fresh answer was compared with its own."""
        score = (self._entries.get(entry) or _NEW).score + (1 if right else -1)
        self._entries.put(entry, Trusted(max(-_MOST_WRONG, min(_MOST_RIGHT, score)), 0))

    def kept(self) -> dict[str, tuple[int, int]]:
        """Those used last, for `restore`."""
        return {entry: (each.score, each.unchecked) for entry, each in self._entries.items()[-_MOST_KEPT:]}

    def restore(self, entries: Mapping[str, tuple[int, int]]) -> None:
        """Becomes what another one was."""
        self._entries = Recent(_MOST_ENTRIES)
        for entry, (score, unchecked) in entries.items():
            self._entries.put(entry, Trusted(max(-_MOST_WRONG, min(_MOST_RIGHT, score)), max(0, unchecked)))
