"""The events of an entry, as a reader gets them. No I/O."""

from __future__ import annotations

from streamway.journal import Cursor, Entry, Line, decode_events
from streamway.v1 import common_pb2


def events_of(entry: Entry) -> list[common_pb2.Event]:
    """With epoch, positions and line. Raises protobuf's DecodeError."""
    events = decode_events(entry)
    if len(events) == 1 and entry.first < entry.last:
        # An event that covers the whole entry may leave its positions out.
        events[0].first_position = entry.first
    if entry.begin is not None:
        begun = events[0].taken_over if events[0].HasField("taken_over") else events[0].started
        begun.line = str(entry.begin.line)
    return events


def before(first: int, line: Line) -> Cursor:
    """The cursor from which `first` is the next position of the answer on `line`."""
    position = max(0, first - 1)
    return Cursor(line.owner(position) if position else 0, position)
