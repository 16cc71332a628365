"""What a client can ask for on a WebSocket, whichever subprotocol it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamway.errors import InvalidArgument, Malformed, StreamwayError
from streamway.journal.cursor import START, Cursor
from streamway.v1 import common_pb2

# What a client calls a generation: a text in JSON, a number in protobuf. Empty or 0: none.
Name = str | int


class BadFrame(Exception):
    """A frame that is not one of ours. `id` is the generation it names, empty when it names none."""

    def __init__(self, error: StreamwayError, id_: Name = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.id = id_


@dataclass(frozen=True, slots=True)
class Open:
    """Starts a generation. The request has neither generation nor tenant, and the session as the client said it."""

    id: Name
    request: common_pb2.GenerationRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stops a generation of this connection."""

    id: Name


@dataclass(frozen=True, slots=True)
class Resume:
    """Goes on with a generation from a cursor."""

    id: Name
    generation: str
    after: Cursor


@dataclass(frozen=True, slots=True)
class Restore:
    """Goes on with everything another connection had; `after` are the client's own cursors, by generation."""

    restore_id: str
    after: Mapping[str, Cursor]


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a pong; `t` comes back as it is."""

    t: float | str | None


Command = Open | Cancel | Resume | Restore | Ping


@dataclass(frozen=True, slots=True)
class Live:
    """A generation of a connection, and how far it was sent."""

    id: Name
    generation: str
    cursor: Cursor


def cursor_of(field: str, text: str) -> Cursor:
    """A client's cursor; empty means the beginning. Raises InvalidArgument that names the field."""
    try:
        return Cursor.parse(text) if text else START
    except Malformed:
        problem = f"{text[:64]!r} is no cursor; send one as the edge gave it, 'epoch-position', or '0-0'"
        raise InvalidArgument(field, problem) from None
