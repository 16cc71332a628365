"""How much less similarities to an entry count that nobody has needed for long, as far as comparisons say so.

Where questions come subject by subject, an entry of an earlier subject is near to questions of the new one and answers none of
them; one that was stored, served or found right a moment ago belongs to what is asked now. So entries are told apart by how many
questions ago that was, in `len(BORDERS) + 1` classes, and the similarities of each class are shifted as `refinement` shifts those
of a single entry: along one curve for all, by what the last comparisons with entries of the class say. Where the age of an entry
says nothing, the shifts are near 0.

The threshold is found over shifted similarities, so the budget is kept whatever the shifts are worth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from services.cache.core.refinement import Curve, Seen, fitted, shift
from streamway.runtime.recent import Recent

# In questions since the last use. What is not known was used long ago.
BORDERS: Final = (64, 512)
# Comparisons of a class, and of all for the curve: the last ones.
OF_A_CLASS: Final = 200
_OF_ALL: Final = 600
# Comparisons before there is a curve, and between two fits of it.
_LEAST: Final = 60
_FIT_EVERY: Final = 25
_MOST_ENTRIES: Final = 4096


class Staleness:
    """Of one tenant's entries. `now` is the number of its questions so far."""

    def __init__(self) -> None:
        self._used: Recent[str, int] = Recent(_MOST_ENTRIES)
        self._classes: tuple[deque[Seen], ...] = tuple(deque(maxlen=OF_A_CLASS) for _ in range(len(BORDERS) + 1))
        self._all: deque[Seen] = deque(maxlen=_OF_ALL)
        self._unfitted = 0
        self._curve: Curve | None = None
        self._shifts = [0.0] * len(self._classes)

    def used(self, entry: str, now: int) -> None:
        """It was stored, served, or found right."""
        self._used.put(entry, now)

    def shift(self, entry: str, now: int) -> float:
        """What its similarities are to be shifted by."""
        return self._shifts[self._class_of(entry, now)]

    def take(self, entry: str, now: int, seen: Seen) -> None:
        """A comparison with it, at its similarity without a shift."""
        self._classes[self._class_of(entry, now)].append(seen)
        self._all.append(seen)
        self._unfitted += 1
        if len(self._all) >= _LEAST and (self._curve is None or self._unfitted >= _FIT_EVERY):
            self._fit()

    def kept(self, now: int) -> tuple[list[list[Seen]], Curve | None, dict[str, int]]:
        """The comparisons by class, the curve, and when entries were used that are not in the last class yet: for `restore`."""
        used = {entry: at for entry, at in self._used.items() if now - at <= BORDERS[-1]}
        return [list(each) for each in self._classes], self._curve, used

    def restore(self, classes: Iterable[Iterable[Seen]], curve: Curve | None, used: Mapping[str, int]) -> None:
        """Becomes nearly what another one was: the order of comparisons of different classes is forgotten."""
        for own, seen in zip(self._classes, classes, strict=True):
            own.clear()
            own.extend(seen)
        self._all.clear()
        self._all.extend(seen for of_class in self._classes for seen in of_class)
        self._used = Recent(_MOST_ENTRIES)
        for entry, at in used.items():
            self._used.put(entry, at)
        self._curve = curve
        self._fit()

    def _fit(self) -> None:
        self._unfitted = 0
        # Where the last comparisons give no curve, the one before holds.
        self._curve = (fitted(self._all) if len(self._all) >= _LEAST else None) or self._curve
        for number, seen in enumerate(self._classes):
            self._shifts[number] = shift(seen, self._curve) if self._curve is not None else 0.0

    def _class_of(self, entry: str, now: int) -> int:
        at = self._used.get(entry)
        return len(BORDERS) if at is None else bisect_left(BORDERS, now - at)
