"""What the parts of the edge need from one another and from outside."""

from __future__ import annotations

from typing import Protocol

from streamway.v1 import common_pb2


class Reader(Protocol):
    """Whoever reads one generation for a client. Called on the event loop; must not block.

    Events come in order and once; the last one is `finished` or `error`. An event belongs to the batch it came in: encode
    it, don't keep it.
    """

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. `kind` is the name of the set member of `Event.event`."""
        ...


class Beating(Protocol):
    """A connection that wants a sign of life now and then."""

    def beat(self) -> None:
        """Sends one, and looks whether the other side still lives."""
        ...
