"""What of a request makes its prompt, apart from how tokens are drawn: whoever sends it again fills the same KV.

A context is the JSON of a chat completion's body with nothing but the fields that an engine's chat template reads. Two kinds:

    conversation   every message, and the answer    what the session's next turn begins with
    beginning      the system messages and tools    what every session with this system prompt begins with
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any, Final

import msgspec
import xxhash
from google.protobuf.message import DecodeError

from streamway.v1 import common_pb2

_SHAPING: Final = (
    "tools",
    "functions",
    "tool_choice",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    # Engines with this field share KV only among requests that have the same.
    "cache_salt",
)
_SYSTEM: Final = frozenset({"system", "developer"})
# Below this an engine computes it sooner than anybody can tell it to.
LEAST_BYTES: Final = 256


class _Role(msgspec.Struct):
    role: str = ""


_body: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages: Final = msgspec.json.Decoder(list[msgspec.Raw])
_role: Final = msgspec.json.Decoder(_Role)
_encode: Final = msgspec.json.Encoder().encode


def conversation(request: common_pb2.GenerationRequest, answer: str) -> bytes:
    """The context of a session's next turn; empty for a body that cannot be read. `answer` empty: it is not known."""
    made = _parts(request)
    if made is None:
        return b""
    shaping, messages = made
    if answer:
        messages = [*messages, msgspec.Raw(_encode({"role": "assistant", "content": answer}))]
    return _encode({"messages": messages, **shaping})


def beginning(request: common_pb2.GenerationRequest) -> bytes:
    """The context that a request shares with others of its tenant; empty when it has none worth the name."""
    if request.openai_body:
        made = _parts(request)
        if made is None:
            return b""
        shaping, messages = made
        leading = list(takewhile(lambda message: _role_of(message) in _SYSTEM, messages))
    else:
        # What follows may be long, and is not looked at.
        typed = takewhile(lambda message: message.role in _SYSTEM, request.messages)
        shaping, leading = {}, [msgspec.Raw(_encode(_typed(message))) for message in typed]
    context = _encode({"messages": leading, **shaping}) if leading else b""
    return context if len(context) >= LEAST_BYTES else b""


def one_token(context: bytes, tenant: str, model: str, session: str) -> common_pb2.GenerationRequest:
    """The request that has an engine compute a context and next to nothing else. Raises ValueError for what is none.

    It ends with a user's message, as the next turn will: many chat templates refuse anything else.
    """
    try:
        body: dict[str, Any] = _body.decode(context)
        messages = _messages.decode(body["messages"])
        if not messages or _role_of(messages[-1]) != "user":
            messages.append(msgspec.Raw(b'{"role":"user","content":"."}'))
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(f"not a context: {type(problem).__name__}") from None
    body.update(messages=messages, max_tokens=1, temperature=0)
    request = common_pb2.GenerationRequest(
        model=model, tenant=tenant, session=session, openai_body=_encode(body), durability=common_pb2.DURABILITY_OFF
    )
    request.limits.max_tokens = 1
    return request


def digest(context: bytes) -> str:
    """The name of a context, 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(context)


def said(events: Iterable[bytes]) -> str:
    """The text of an answer, from its serialised events; empty when it is more than one plain text."""
    parts: list[str] = []
    try:
        for raw in events:
            event = common_pb2.Event.FromString(raw)
            if event.HasField("token"):
                if event.token.choice or event.token.raw_delta:
                    return ""
                parts.append(event.token.text)
    except DecodeError:
        return ""
    return "".join(parts)


def _parts(request: common_pb2.GenerationRequest) -> tuple[dict[str, msgspec.Raw], list[msgspec.Raw]] | None:
    """The fields beside the messages, and the messages."""
    if not request.openai_body:
        return {}, [msgspec.Raw(_encode(_typed(message))) for message in request.messages]
    try:
        body = _body.decode(request.openai_body)
        messages = _messages.decode(body["messages"])
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError):
        return None
    return {name: body[name] for name in _SHAPING if name in body}, messages


def _typed(message: common_pb2.Message) -> dict[str, str]:
    made = {"role": message.role, "content": message.content}
    return {**made, "name": message.name} if message.name else made


def _role_of(message: msgspec.Raw) -> str:
    try:
        return _role.decode(message).role
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
