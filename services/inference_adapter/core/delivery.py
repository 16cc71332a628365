"""Log before deliver: which events of a journaled generation its readers may have.

    put          strict, relaxed: waits          relaxed while the store is silent: goes out, marked not durable
    confirmed    what waited up to there goes out
    unanswered   relaxed: everything that waits goes out, marked, until the store has caught up
    lost         relaxed: the same for good, since there is no channel any more

Per-token path: an event is kept as its position and its bytes, serialised once for the journal and for all readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from streamway.runtime.wire import varint

# An event: its (last) position, and its bytes.
Kept = tuple[int, bytes]

# `Event.not_durable = true` as protobuf writes it; the fields of a message may come in any order.
NOT_DURABLE: Final = b"\x68\x01"
# The head of `Event.entry_position`.
_ENTRY: Final = b"\x80\x01"
_NOTHING: Final[Sequence[Kept]] = ()


class Gate:
    """Holds back what the store has not confirmed. `strict` never delivers without it."""

    __slots__ = ("_entries", "_last", "_strict", "_waiting", "loose")

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._waiting: deque[Kept] = deque()
        # Where an entry has several events: the last position of it, for each of them but the last.
        self._entries: dict[int, int] = {}
        self._last = 0
        # The store is silent, and events go out without it.
        self.loose = False

    @property
    def waiting(self) -> bool:
        """Something is held back."""
        return bool(self._waiting)

    def put(self, events: Sequence[Kept]) -> Sequence[Kept]:
        """Takes the next flush, which is one entry; gives what may go out now."""
        last = self._last = events[-1][0]
        if len(events) > 1:
            for position, _ in events[:-1]:
                self._entries[position] = last
        if self.loose:
            return self._marked(events)
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
        if self._entries:
            self._entries = {part: last for part, last in self._entries.items() if last > position}
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
        return self.lost()

    def lost(self) -> Sequence[Kept]:
        """Nothing will be confirmed any more; gives what may go out now."""
        self.loose = True
        events = self._marked(self._waiting)
        self._waiting.clear()
        return events

    def _marked(self, events: Iterable[Kept]) -> list[Kept]:
        """As not durable, with where their entries end."""
        if not self._entries:
            return [(position, raw + NOT_DURABLE) for position, raw in events]
        entries, self._entries = self._entries, {}
        marked: list[Kept] = []
        for position, raw in events:
            last = entries.get(position)
            marked.append((position, raw + NOT_DURABLE + (_ENTRY + varint(last) if last else b"")))
        return marked
