"""Log before deliver: which events of a journaled generation its readers may have.

    put          strict, relaxed: waits          relaxed while the store is silent: goes out, marked not durable
    confirmed    what waited up to there goes out
    unanswered   relaxed: everything that waits goes out, marked, until the store has caught up

Per-token path: an event is kept as its position and its bytes, serialised once for the journal and for all readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

# An event: its (last) position, and its bytes.
Kept = tuple[int, bytes]

# `Event.not_durable = true` as protobuf writes it; the fields of a message may come in any order.
NOT_DURABLE: Final = b"\x68\x01"
_NOTHING: Final[Sequence[Kept]] = ()


class Gate:
    """Holds back what the store has not confirmed. `strict` never delivers without it."""

    __slots__ = ("_last", "_strict", "_waiting", "loose")

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._waiting: deque[Kept] = deque()
        self._last = 0
        # The store is silent, and events go out without it.
        self.loose = False

    @property
    def waiting(self) -> bool:
        """Something is held back."""
        return bool(self._waiting)

    def put(self, events: Sequence[Kept]) -> Sequence[Kept]:
        """Takes the next flush; gives what may go out now."""
        self._last = events[-1][0]
        if self.loose:
            return [(position, raw + NOT_DURABLE) for position, raw in events]
        self._waiting.extend(events)
        return _NOTHING

    def confirmed(self, position: int) -> Sequence[Kept]:
        """Everything up to `position` is in the channel; gives what may go out now."""
        waiting = self._waiting
        if self.loose:
            self.loose = position < self._last
            return _NOTHING
        if not waiting or waiting[0][0] > position:
            return _NOTHING
        first = waiting.popleft()
        if not waiting or waiting[0][0] > position:
            return (first,)
        events = [first]
        while waiting and waiting[0][0] <= position:
            events.append(waiting.popleft())
        return events

    def unanswered(self) -> Sequence[Kept]:
        """The store is silent; gives what may go out now."""
        if self._strict or not self._waiting:
            return _NOTHING
        self.loose = True
        events = [(position, raw + NOT_DURABLE) for position, raw in self._waiting]
        self._waiting.clear()
        return events
