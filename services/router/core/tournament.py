"""The smallest of many numbers that change one at a time.

A tree of winners over the entries, as in a knock-out tournament; a change replays one path to the root:

            1
          /   \\
         4     1        replace 7 by 3:  3 beats 4, 1 beats 3: two comparisons
        / \\   / \\
       7   4 1   9
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEVER: Final = float("inf")


class Tournament:
    """Names with a number each. `NEVER` keeps a name out of the choice. Of equal ones the first in order of names wins."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        self._place = {name: index for index, name in enumerate(self._names)}
        self._width = 1 << max(0, len(self._names) - 1).bit_length()
        self._tree = [NEVER] * (2 * self._width)

    def set(self, name: str, value: float) -> None:
        """Changes one: log2(n) comparisons. Raises KeyError for an unknown name."""
        tree = self._tree
        at = self._width + self._place[name]
        tree[at] = value
        while at > 1:
            at >>= 1
            left, right = tree[2 * at], tree[2 * at + 1]
            winner = min(left, right)
            if tree[at] == winner:
                return
            tree[at] = winner

    def least(self) -> str | None:
        """The name with the smallest number; None when there is none, or all are `NEVER`."""
        tree = self._tree
        if tree[1] == NEVER:
            return None
        at = 1
        while at < self._width:
            at = 2 * at if tree[2 * at] <= tree[2 * at + 1] else 2 * at + 1
        return self._names[at - self._width]
