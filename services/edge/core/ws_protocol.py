"""Frames that a client sends on `streamway.v1.json`: JSON text to typed commands.

Total: `parse` gives a command or raises `BadFrame`. The protocol is in docs/protocol.md. The binary subprotocol has the same
commands (`ws_proto.py`). `commands.py` has what both become.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from services.edge.core import cache_control
from services.edge.core.commands import BadFrame
from services.edge.core.json_errors import explain
from services.edge.core.kept_context import USES
from streamway.errors import InvalidArgument, Malformed
from streamway.v1 import common_pb2

SUBPROTOCOL: Final = "streamway.v1.json"
AUTH_PREFIX: Final = "streamway.auth."

Id = Annotated[str, Meta(min_length=1, max_length=64)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]


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


class OpenBody(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a generation is asked for with: the body of `POST /v1/generations`, and most of an `open`."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    params: Params = Params()
    session: Annotated[str, Meta(max_length=256)] = ""
    priority: Annotated[int, Meta(ge=-128, le=127)] = 0
    deadline_ms: Annotated[int, Meta(ge=1, le=7 * 86_400_000)] | None = None
    cache: Literal["off", "exact", "folded", "semantic"] | None = None
    cache_control: Annotated[str, Meta(max_length=256)] = ""
    replay: Literal["burst", "paced"] | None = None
    durability: Literal["off", "relaxed", "strict"] | None = None
    on_disconnect: Literal["grace", "cancel", "continue"] = "grace"
    idempotency_key: Annotated[str, Meta(max_length=256)] = ""
    context: Literal["start", "append"] | None = None


class OpenFrame(OpenBody, tag_field="type", tag="open", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Starts a generation."""

    id: Id


class CancelFrame(Struct, tag_field="type", tag="cancel", forbid_unknown_fields=True, frozen=True):
    """Stops a generation of this connection."""

    id: Id


class ResumeFrame(Struct, tag_field="type", tag="resume", forbid_unknown_fields=True, frozen=True):
    """Goes on with a generation from a cursor."""

    id: Id
    generation: Annotated[str, Meta(min_length=1, max_length=64)]
    after: str = "0-0"


class RestoreFrame(Struct, tag_field="type", tag="restore", forbid_unknown_fields=True, frozen=True):
    """Goes on with everything another connection had; `after` has the client's own cursors, by generation."""

    restore_id: Annotated[str, Meta(min_length=1, max_length=64)]
    after: dict[str, str] = {}


class PingFrame(Struct, tag_field="type", tag="ping", forbid_unknown_fields=True, frozen=True):
    """Asks for a pong; `t` comes back as it is."""

    t: int | float | Annotated[str, Meta(max_length=64)] | None = None


Command = OpenFrame | CancelFrame | ResumeFrame | RestoreFrame | PingFrame
KNOWN_TYPES: Final = ("open", "cancel", "resume", "restore", "ping")
_CACHE: Final = {
    None: common_pb2.CACHE_POLICY_UNSPECIFIED,
    "off": common_pb2.CACHE_POLICY_OFF,
    "exact": common_pb2.CACHE_POLICY_EXACT,
    "folded": common_pb2.CACHE_POLICY_FOLDED,
    "semantic": common_pb2.CACHE_POLICY_SEMANTIC,
}
_DURABILITY: Final = {
    None: common_pb2.DURABILITY_UNSPECIFIED,
    "off": common_pb2.DURABILITY_OFF,
    "relaxed": common_pb2.DURABILITY_RELAXED,
    "strict": common_pb2.DURABILITY_STRICT,
}
_REPLAY: Final = {
    None: common_pb2.REPLAY_UNSPECIFIED,
    "burst": common_pb2.REPLAY_BURST,
    "paced": common_pb2.REPLAY_PACED,
}
_ON_DISCONNECT: Final = {
    "grace": common_pb2.ON_DISCONNECT_GRACE,
    "cancel": common_pb2.ON_DISCONNECT_CANCEL,
    "continue": common_pb2.ON_DISCONNECT_CONTINUE,
}
_decoder: Final = msgspec.json.Decoder(Command)
_body_decoder: Final = msgspec.json.Decoder(OpenBody)


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


def parse_body(body: bytes) -> OpenBody:
    """The body of `POST /v1/generations`. Raises Malformed or InvalidArgument with the field at fault."""
    if not body:
        raise Malformed("the request body", "it is empty; send a JSON object")
    try:
        return _body_decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise explain(problem, "the request body") from None


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


def to_request(frame: OpenBody, now_ms: int) -> common_pb2.GenerationRequest:
    """The request that an `open` asks for, without generation and tenant; the session as the client said it.

    `now_ms`: Unix time, for the deadline.
    """
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
        cache_control=cache_control.parse(frame.cache_control),
        replay=_REPLAY[frame.replay],
        on_disconnect=_ON_DISCONNECT[frame.on_disconnect],
        durability=_DURABILITY[frame.durability],
        session=frame.session,
        idempotency_key=frame.idempotency_key,
    )
    if frame.context is not None:
        request.context.use = USES[frame.context]
    if frame.deadline_ms is not None:
        request.deadline_unix_ms = now_ms + frame.deadline_ms
    return request
