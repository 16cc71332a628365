"""Frames that a client sends on `streamway.v1.json`: JSON text to typed commands.

Total: `parse` gives a command or raises `BadFrame`. The protocol is in docs/protocol.md.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from services.edge.core.json_errors import explain
from streamway.errors import InvalidArgument, StreamwayError
from streamway.v1 import common_pb2

SUBPROTOCOL: Final = "streamway.v1.json"
AUTH_PREFIX: Final = "streamway.auth."

Id = Annotated[str, Meta(min_length=1, max_length=64)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]


class BadFrame(Exception):
    """A frame that is not one of ours. `id` is the generation it names, empty when it names none."""

    def __init__(self, error: StreamwayError, id_: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.id = id_


class ChatMessage(Struct, forbid_unknown_fields=True, frozen=True):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str
    name: Annotated[str, Meta(max_length=256)] = ""


class Params(Struct, forbid_unknown_fields=True, frozen=True):
    """How tokens are drawn and how many. Absent: the engine's default."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: Annotated[int, Meta(ge=1, le=16)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=16)] | None = None


class OpenFrame(Struct, tag_field="type", tag="open", forbid_unknown_fields=True, frozen=True):
    """Starts a generation."""

    id: Id
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    params: Params = Params()
    session: Annotated[str, Meta(max_length=256)] = ""
    priority: Annotated[int, Meta(ge=-128, le=127)] = 0
    deadline_ms: Annotated[int, Meta(ge=1, le=7 * 86_400_000)] | None = None
    cache: Literal["off", "exact"] | None = None
    durability: Literal["off"] = "off"
    idempotency_key: Annotated[str, Meta(max_length=256)] = ""


class CancelFrame(Struct, tag_field="type", tag="cancel", forbid_unknown_fields=True, frozen=True):
    """Stops a generation of this connection."""

    id: Id


class PingFrame(Struct, tag_field="type", tag="ping", forbid_unknown_fields=True, frozen=True):
    """Asks for a pong; `t` comes back as it is."""

    t: int | float | Annotated[str, Meta(max_length=64)] | None = None


Command = OpenFrame | CancelFrame | PingFrame
KNOWN_TYPES: Final = ("open", "cancel", "ping")
_CACHE: Final = {
    None: common_pb2.CACHE_POLICY_UNSPECIFIED,
    "off": common_pb2.CACHE_POLICY_OFF,
    "exact": common_pb2.CACHE_POLICY_EXACT,
}
_decoder: Final = msgspec.json.Decoder(Command)


class _Head(Struct):
    """What an error needs to know of a frame that failed. Raw: the fields may have any type."""

    type: msgspec.Raw = msgspec.Raw(b"null")
    id: msgspec.Raw = msgspec.Raw(b"null")


_head: Final = msgspec.json.Decoder(_Head)


def parse(text: str) -> Command:
    """The command in one text frame. Raises BadFrame."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise _bad(text, problem) from None


def _bad(text: str, problem: Exception) -> BadFrame:
    try:
        head = _head.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return BadFrame(explain(problem, "frame"))
    kind, id_ = _string(head.type), _string(head.id)
    if kind not in KNOWN_TYPES:
        shown = "missing" if bytes(head.type) == b"null" else f"{kind[:64]!r} is unknown" if kind else "not a string"
        return BadFrame(InvalidArgument("type", f"{shown}; known types: {', '.join(KNOWN_TYPES)}"), id_)
    return BadFrame(explain(problem, "frame"), id_)


def _string(raw: msgspec.Raw) -> str:
    """The JSON string in `raw`, short enough to be an id; otherwise empty."""
    try:
        value = msgspec.json.decode(raw, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    return value if len(value) <= 64 else ""


def to_request(frame: OpenFrame, now_ms: int) -> common_pb2.GenerationRequest:
    """The request that an `open` asks for, without generation, session and tenant. `now_ms`: Unix time, for the deadline."""
    params = frame.params
    request = common_pb2.GenerationRequest(
        model=frame.model,
        messages=[
            common_pb2.Message(role=message.role, content=message.content, name=message.name)
            for message in frame.messages
        ],
        sampling=common_pb2.Sampling(
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            min_p=params.min_p,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            seed=params.seed,
            n=params.n,
        ),
        limits=common_pb2.Limits(
            max_tokens=params.max_tokens,
            stop=[params.stop] if isinstance(params.stop, str) else params.stop or [],
        ),
        priority=frame.priority,
        cache=_CACHE[frame.cache],
        on_disconnect=common_pb2.ON_DISCONNECT_CANCEL,
    )
    if frame.deadline_ms is not None:
        request.deadline_unix_ms = now_ms + frame.deadline_ms
    return request
