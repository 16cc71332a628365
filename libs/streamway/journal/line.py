"""The line of an epoch: from which position on the entries of each of its ancestors, and its own, are the answer.

    0:1,1048999:2,2097999:37

    position   1         2 … 36             37 …
    epoch      0         1048999            2097999
               accepted  the first call     the call that took over

What the first call wrote at position 37 and beyond is not part of this answer, though the channel may hold it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

_SEGMENT = re.compile(r"(0|[1-9][0-9]{0,19}):([1-9][0-9]{0,19})")
# What nearly all are: the line of a first call.
_FIRST_CALL = re.compile(r"0:1,([1-9][0-9]{0,19}):([2-9]|[1-9][0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Line:
    """Pairs of epoch and first position; both strictly grow. Never empty."""

    segments: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `epoch:start,…`. Raises ValueError for anything that `str` of a line does not write."""
        first_call = _FIRST_CALL.fullmatch(text)
        if first_call is not None:
            epoch, start = first_call.groups()
            return cls(((0, 1), (int(epoch), int(start))))
        segments: list[tuple[int, int]] = []
        for part in text.split(","):
            found = _SEGMENT.fullmatch(part)
            if found is None:
                raise ValueError(f"not a line: {text[:100]!r}")
            segment = int(found[1]), int(found[2])
            if segments and (segment[0] <= segments[-1][0] or segment[1] <= segments[-1][1]):
                raise ValueError(f"a line must grow: {text[:100]!r}")
            segments.append(segment)
        return cls(tuple(segments))

    def __str__(self) -> str:
        return ",".join(f"{epoch}:{start}" for epoch, start in self.segments)

    @property
    def epoch(self) -> int:
        """The epoch whose line this is."""
        return self.segments[-1][0]

    @property
    def start(self) -> int:
        """Where that epoch starts."""
        return self.segments[-1][1]

    @property
    def begins_anew(self) -> bool:
        """No call before this epoch's has written more than its begin, so there is no text to go on with."""
        return all(start + 1 == after for (_, start), (_, after) in pairwise(self.segments))

    def extend(self, epoch: int, start: int) -> Line:
        """The line of an epoch that goes on from this one. Raises ValueError when it would not grow."""
        if epoch <= self.epoch or start <= self.start:
            raise ValueError(f"{epoch}:{start} does not continue {self}")
        return Line((*self.segments, (epoch, start)))

    def holds(self, epoch: int, position: int) -> bool:
        """Whether what `epoch` wrote at `position` is part of the answer."""
        after: int | None = None
        for own, start in reversed(self.segments):
            if own == epoch:
                return start <= position and (after is None or position < after)
            after = start
        return False

    def owner(self, position: int) -> int:
        """The epoch that wrote `position` of this answer; 0 for what lies before its first position."""
        index = bisect_right(self.segments, position, key=lambda segment: segment[1])
        return self.segments[index - 1][0] if index else 0

    def parting(self, other: Line) -> int:
        """The last position up to which two answers are the same text, if both are written that far; 0: none.

        The line of an epoch never changes, so two lines are equal up to the first pair that differs.
        """
        for mine, theirs in zip(self.segments, other.segments, strict=False):
            if mine != theirs:
                return min(mine[1], theirs[1]) - 1
        longer = max(self.segments, other.segments, key=len)
        shared = min(len(self.segments), len(other.segments))
        # One continues the other: they part where the next epoch starts. The same line never parts.
        return longer[shared][1] - 1 if len(longer) > shared else 2**64 - 1
