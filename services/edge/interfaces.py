"""What the parts of the edge need from one another and from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.edge.core.commands import Command, Live, Name
from streamway.errors import StreamwayError
from streamway.v1 import common_pb2


class Reader(Protocol):
    """Whoever reads one generation for a client. Called on the event loop; must not block.

    Events come in order and once; the last one is `finished` or `error`. A resumed generation begins with `resumed`. An error
    without a position is this edge's own: of a generation that can be resumed it says only that this reader gets no more.
    An event belongs to the batch it came in: encode it, don't keep it.
    """

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. `kind` is the name of the set member of `Event.event`."""
        ...


class Beating(Protocol):
    """A connection that wants a sign of life now and then."""

    def beat(self) -> None:
        """Sends one, and looks whether the other side still lives."""
        ...


class Dismissable(Protocol):
    """What a client reads, until it may not any more."""

    def dismiss(self, error: StreamwayError) -> None:
        """Ends the reading, and says why. What has ended already is left as it is."""
        ...


class Frames(Protocol):
    """Events of one generation as frames of a WebSocket."""

    def token(self, event: common_pb2.Event) -> bytes:
        """A piece of the answer. Per-token path."""
        ...

    def other(self, event: common_pb2.Event, kind: str, traceparent: str = "") -> bytes:
        """Anything else; empty for what this subprotocol does not tell."""
        ...


class Dialect(Protocol):
    """A subprotocol of the WebSocket: what a client says becomes commands, what it is told becomes frames."""

    @property
    def name(self) -> str:
        """As it is negotiated."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """The frame of a heartbeat."""
        ...

    def parse(self, data: str | bytes, now_ms: int) -> Command:
        """The command in one message, a text one if `data` is text. `now_ms`: Unix time, for deadlines. Raises BadFrame."""
        ...

    def hello(self, restore_id: str, session: str, models: list[str], heartbeat_ms: int, grace_ms: int) -> bytes:
        """The first frame of every connection."""
        ...

    def pong(self, t: float | str | None) -> bytes:
        """The answer to a ping."""
        ...

    def refused(self, error: StreamwayError, id_: Name) -> bytes:
        """A frame was refused."""
        ...

    def going_away(self, error: StreamwayError, live: Sequence[Live]) -> bytes:
        """The process, or this connection, ends; `live` can be resumed on another."""
        ...

    def restored(self, restore_id: str, live: Sequence[Live]) -> bytes:
        """What a restored connection had."""
        ...

    def frames(self, id_: Name) -> Frames:
        """The encoder of one generation."""
        ...

    def name_for(self, stored: str, generation: str, taken: int) -> Name:
        """What a restored generation is called: as it was (`stored`) where that is a name of this subprotocol."""
        ...
