"""What is remembered of answers that turned out wrong: a floor for the entry, then its end, and pairs never tried again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

# How much more similar than a question it was wrong for another one must be.
MARGIN: Final = 0.02
# Wrong answers after which an entry goes.
MOST_WRONG: Final = 2


@dataclass(frozen=True, slots=True)
class Consequence:
    """What follows from a wrong answer: the entry's new floor, and whether it is to be evicted."""

    floor: float
    evict: bool


@dataclass(slots=True)
class _Record:
    floor: float
    asked: list[bytes]


class WrongHits:
    """Floors by entry and denied pairs, each bounded: the longest unused goes first.

    `asked` and `stored` are keys of the two texts; a pair is denied whichever of them is asked.
    """

    def __init__(self, most_entries: int = 10_000, most_pairs: int = 10_000) -> None:
        self._most_entries = most_entries
        self._most_pairs = most_pairs
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._denied: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()

    def report(self, entry: str, asked: bytes, stored: bytes, similarity: float) -> Consequence:
        """Takes a wrong answer, found by an audit or said by a user. The same question twice counts once."""
        record = self._records.setdefault(entry, _Record(0.0, []))
        self._records.move_to_end(entry)
        record.floor = max(record.floor, similarity + MARGIN)
        if asked not in record.asked:
            record.asked.append(asked)
        evict = len(record.asked) >= MOST_WRONG
        if evict:
            for each in record.asked:
                self._deny(each, stored)
            del self._records[entry]
        elif len(self._records) > self._most_entries:
            self._records.popitem(last=False)
        return Consequence(record.floor, evict)

    def floor(self, entry: str) -> float | None:
        """The similarity that this entry asks for; None for one that was never wrong."""
        record = self._records.get(entry)
        return None if record is None else record.floor

    def is_denied(self, asked: bytes, stored: bytes) -> bool:
        """The one was a wrong answer to the other, at an entry that is gone for it."""
        pair = _pair(asked, stored)
        if pair not in self._denied:
            return False
        self._denied.move_to_end(pair)
        return True

    def forget(self, entry: str) -> None:
        """The entry is gone for another reason."""
        self._records.pop(entry, None)

    def records(self) -> tuple[dict[str, tuple[float, list[bytes]]], list[tuple[bytes, bytes]]]:
        """Floor and questions by entry, and the denied pairs: for `restore`."""
        return {entry: (each.floor, each.asked) for entry, each in self._records.items()}, list(self._denied)

    def restore(self, floors: dict[str, tuple[float, list[bytes]]], denied: list[tuple[bytes, bytes]]) -> None:
        """Becomes what another one was."""
        self._records = OrderedDict((entry, _Record(floor, list(asked))) for entry, (floor, asked) in floors.items())
        self._denied = OrderedDict.fromkeys(denied)

    def _deny(self, asked: bytes, stored: bytes) -> None:
        self._denied[_pair(asked, stored)] = None
        self._denied.move_to_end(_pair(asked, stored))
        if len(self._denied) > self._most_pairs:
            self._denied.popitem(last=False)


def _pair(one: bytes, other: bytes) -> tuple[bytes, bytes]:
    return (one, other) if one <= other else (other, one)
