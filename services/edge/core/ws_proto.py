"""The subprotocol `streamway.v1.proto`: one `ClientFrame` or `ServerFrame` in each binary frame.

82 0f          binary, 15 bytes
   0a 0d       ServerFrame.event, 13 bytes
      08 07    Event.subscription: the client's number for the generation
      …        the event as gRPC has it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from services.edge.core.commands import BadFrame, Cancel, Command, Live, Name, Open, Ping, Restore, Resume, cursor_of
from streamway.errors import InvalidArgument, Malformed, StreamwayError, to_status
from streamway.v1 import common_pb2, edge_pb2

SUBPROTOCOL: Final = "streamway.v1.proto"
_SHORT: Final = tuple(bytes((0x82, length)) for length in range(126))
# What a client must leave to the edge.
_OURS: Final = ("generation", "tenant", "traceparent", "baggage")
_MOST_NUMBER: Final = 2**32 - 1


def binary_frame(payload: bytes) -> bytes:
    """One complete binary frame of a server (RFC 6455 §5.2)."""
    length = len(payload)
    if length < 126:
        return _SHORT[length] + payload
    if length < 65_536:
        return b"\x82\x7e" + length.to_bytes(2, "big") + payload
    return b"\x82\x7f" + length.to_bytes(8, "big") + payload


def _frame(frame: edge_pb2.ServerFrame) -> bytes:
    return binary_frame(frame.SerializeToString())


def event_frame(event: common_pb2.Event) -> bytes:
    """A frame with one event. Per-token path: the outer message is two bytes and a length, written by hand."""
    body = event.SerializeToString()
    length = len(body)
    if length < 0x80:
        return binary_frame(b"\x0a%c%b" % (length, body))
    prefix = bytearray(b"\x0a")
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return binary_frame(bytes(prefix) + body)


class ProtoDialect:
    """What a connection says in protobuf; see `services.edge.interfaces.Dialect`."""

    name: Final = SUBPROTOCOL
    heartbeat: Final = event_frame(common_pb2.Event(heartbeat=common_pb2.Heartbeat()))

    def parse(self, data: str | bytes, now_ms: int) -> Command:
        """The command in one frame. Raises BadFrame."""
        if isinstance(data, str):
            raise BadFrame(Malformed("a text frame", f"{SUBPROTOCOL} has binary frames only"))
        try:
            frame = edge_pb2.ClientFrame.FromString(data)
        except DecodeError:
            raise BadFrame(Malformed("frame", "it is no ClientFrame of streamway.v1")) from None
        kind = frame.WhichOneof("frame")
        number = int(getattr(frame, kind).number) if kind in ("open", "cancel", "resume") else 0
        try:
            return _command(frame, kind, number)
        except InvalidArgument as bad:
            raise BadFrame(bad, number) from None

    def hello(self, restore_id: str, session: str, models: list[str], heartbeat_ms: int, grace_ms: int) -> bytes:
        hello = edge_pb2.HelloFrame(
            restore_id=restore_id, session=session, models=models, heartbeat_ms=heartbeat_ms, grace_ms=grace_ms
        )
        return _frame(edge_pb2.ServerFrame(hello=hello))

    def pong(self, t: float | str | None) -> bytes:
        return _frame(edge_pb2.ServerFrame(pong=edge_pb2.PongFrame(t=int(t or 0))))

    def refused(self, error: StreamwayError, id_: Name) -> bytes:
        refused = edge_pb2.RefusedFrame(number=int(id_ or 0), status=to_status(error))
        return _frame(edge_pb2.ServerFrame(refused=refused))

    def going_away(self, error: StreamwayError, live: Sequence[Live]) -> bytes:
        going = edge_pb2.GoingAwayFrame(status=to_status(error), live=_listed(live))
        return _frame(edge_pb2.ServerFrame(going_away=going))

    def restored(self, restore_id: str, live: Sequence[Live]) -> bytes:
        restored = edge_pb2.RestoredFrame(restore_id=restore_id, generations=_listed(live))
        return _frame(edge_pb2.ServerFrame(restored=restored))

    def frames(self, id_: Name) -> GenerationEvents:
        return GenerationEvents(int(id_))

    def name_for(self, stored: str, generation: str, taken: int) -> Name:
        """What a restored generation is called: as before, else a number that the client hardly uses."""
        return int(stored) if stored.isdecimal() and 0 < int(stored) <= _MOST_NUMBER else _MOST_NUMBER - taken


class GenerationEvents:
    """The frames of one generation."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def token(self, event: common_pb2.Event) -> bytes:
        """A piece of the answer. Per-token path."""
        event.subscription = self._number
        return event_frame(event)

    def other(self, event: common_pb2.Event, kind: str, traceparent: str = "") -> bytes:
        """Anything else; where the worker listens is nothing for clients."""
        if kind == "accepted":
            event.accepted.ClearField("source")
        event.subscription = self._number
        return event_frame(event)


def _command(frame: edge_pb2.ClientFrame, kind: str | None, number: int) -> Command:
    if kind == "ping":
        return Ping(frame.ping.t)
    if kind == "restore":
        if not frame.restore.restore_id:
            raise InvalidArgument("restore_id", "must not be empty")
        after = {name: cursor_of(f"after.{name}", text) for name, text in frame.restore.after.items()}
        return Restore(frame.restore.restore_id[:64], after)
    if kind is None:
        raise InvalidArgument("frame", "it has none of open, cancel, resume, restore, ping")
    if not number:
        raise InvalidArgument(f"{kind}.number", "must be 1 or more")
    if kind == "cancel":
        return Cancel(number)
    if kind == "resume":
        if not frame.resume.generation:
            raise InvalidArgument("resume.generation", "must not be empty")
        return Resume(number, frame.resume.generation[:64], cursor_of("resume.after", frame.resume.after))
    return Open(number, _request(frame.open.request))


def _request(request: common_pb2.GenerationRequest) -> common_pb2.GenerationRequest:
    """The router checks the rest: it serves clients of its own with the same message."""
    for name in _OURS:
        if getattr(request, name):
            raise InvalidArgument(f"request.{name}", "must be empty: the edge fills it in")
    if len(request.session) > 256:
        raise InvalidArgument("request.session", "at most 256 characters")
    if len(request.idempotency_key.encode()) > 256:
        raise InvalidArgument("request.idempotency_key", "at most 256 bytes")
    if not request.on_disconnect:
        request.on_disconnect = common_pb2.ON_DISCONNECT_GRACE
    return request


def _listed(live: Sequence[Live]) -> list[edge_pb2.LiveGeneration]:
    return [
        edge_pb2.LiveGeneration(number=int(each.id or 0), generation=each.generation, cursor=str(each.cursor))
        for each in live
    ]
