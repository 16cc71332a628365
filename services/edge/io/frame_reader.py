"""What reads one generation for a WebSocket: each event becomes a frame of the connection's subprotocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.edge.core.commands import Name
from streamway.v1 import common_pb2

if TYPE_CHECKING:
    from services.edge.io.connection import Connection


class FrameReader:
    """Reads one generation for a connection."""

    __slots__ = ("_connection", "_frames", "_name", "_put", "_token", "_traceparent")

    def __init__(self, connection: Connection, name: Name, traceparent: str) -> None:
        self._connection = connection
        self._name = name
        self._traceparent = traceparent
        self._frames = connection.dialect.frames(name)
        self._token = self._frames.token
        self._put = connection.outbox.put

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. Per-token path."""
        if kind == "token":
            self._put(self._token(event))
            return
        over = kind in ("finished", "error")
        if kind == "error" and self._connection.goes_on_elsewhere(self._name, event):
            # `going_away` has told its cursor, and the connection is closed.
            pass
        elif frame := self._frames.other(event, kind, self._traceparent):
            self._put(frame)
        if over:
            self._connection.ended(self._name)
