"""The JSON that an engine is asked with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from services.inference_adapter.core.continuation import made_tokens
from streamway.errors import Malformed
from streamway.journal.answer import ChoiceSoFar
from streamway.v1 import common_pb2

_Float = Literal["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"]
_Integer = Literal["top_k", "seed", "n"]
# Values stay the bytes that the client sent: numbers, key order and escapes reach the engine as they were.
_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_TRUE: Final = msgspec.Raw(b"true")
_FLOATS: Final[tuple[_Float, ...]] = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty")
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_INTEGERS: Final[tuple[_Integer, ...]] = ("top_k", "seed", "n")


@dataclass(frozen=True, slots=True)
class OurFields:
    """What the mesh tells an engine that understands it: a request's place in its queue, and whose KV this is.

    `salt_field` "": it does not keep KV apart.
    """

    fields: Mapping[str, int]
    salt_field: str
    tenant: str

    def over(self, own_salt: bytes) -> dict[str, int | str]:
        """The fields, in place of a client's. Its own salt keeps its own requests apart, and gets at no other tenant's KV."""
        if not self.salt_field:
            return dict(self.fields)
        salt = hashlib.sha256(self.tenant.encode() + b"\0" + own_salt).hexdigest()[:32]
        return {**self.fields, self.salt_field: salt}


NOTHING_OURS: Final = OurFields({}, "", "")


def build(
    request: common_pb2.GenerationRequest,
    model: str,
    *,
    keep_own_fields: bool = False,
    so_far: ChoiceSoFar | None = None,
    continue_by: Mapping[str, object] | None = None,
    ours: OurFields = NOTHING_OURS,
) -> bytes:
    """The body of a streamed chat completion for `model`, the engine's own name of it.

    Of a client's original body only the model, `stream` and `stream_options` are set, and fields named `streamway…` are left
    out: engines refuse what they do not know. Raises Malformed when that body is not a JSON object.

    With `so_far` it asks for the rest of that answer: its text is the last message, `continue_by` are the fields by which the
    engine is told so, and the limits are lower by what was made. `ours` are the mesh's to set: they stand in place of what a
    client gave for them.
    """
    if not request.openai_body:
        typed = {**typed_fields(request), "model": model, "stream": True, "stream_options": {"include_usage": True}}
        if so_far is not None:
            typed.update(_rest(typed, so_far, continue_by or {}))
        typed.update(ours.over(b""))
        return _encode(typed)
    try:
        body = _decoder.decode(request.openai_body)
        options = _decoder.decode(body["stream_options"]) if _is_object(body.get("stream_options")) else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Malformed("the request body", str(problem)) from None
    options["include_usage"] = _TRUE
    body["model"] = msgspec.Raw(_encode(model))
    body["stream"] = _TRUE
    body["stream_options"] = msgspec.Raw(_encode(options))
    if not keep_own_fields:
        for name in [name for name in body if name.startswith("streamway")]:
            del body[name]
    if so_far is not None:
        plain: dict[str, Any] = {
            name: msgspec.json.decode(body[name]) for name in ("messages", *_LIMITS) if name in body
        }
        for name, value in _rest(plain, so_far, continue_by or {}).items():
            body[name] = msgspec.Raw(_encode(value))
    for name, value in ours.over(bytes(body.get(ours.salt_field, b""))).items():
        body[name] = msgspec.Raw(_encode(value))
    return _encode(body)


def _rest(body: Mapping[str, Any], so_far: ChoiceSoFar, continue_by: Mapping[str, object]) -> dict[str, Any]:
    """The fields that change when an answer is gone on with."""
    messages = list(body["messages"]) if isinstance(body.get("messages"), list) else []
    last = messages[-1] if messages and isinstance(messages[-1], dict) else {}
    if last.get("role") == "assistant" and isinstance(last.get("content"), str):
        # The client began the answer itself: engines take one such message.
        messages[-1] = {**last, "content": last["content"] + so_far.text}
    else:
        messages.append({"role": "assistant", "content": so_far.text})
    changed: dict[str, Any] = {"messages": messages, **continue_by}
    for name in _LIMITS:
        if isinstance(body.get(name), int):
            changed[name] = max(1, body[name] - made_tokens(so_far))
    return changed


def typed_fields(request: common_pb2.GenerationRequest) -> dict[str, Any]:
    """A request without an original body in OpenAI's words. Absent fields stay absent: the engine's default is not zero."""
    body: dict[str, Any] = {"messages": [_message(message) for message in request.messages]}
    sampling = request.sampling
    for name in _FLOATS:
        if sampling.HasField(name):
            # The wire holds float32: seven digits give back the number that was meant (0.7, not 0.699999988).
            body[name] = float(f"{getattr(sampling, name):.7g}")
    for field in _INTEGERS:
        if sampling.HasField(field):
            body[field] = getattr(sampling, field)
    if request.limits.HasField("max_tokens"):
        body["max_tokens"] = request.limits.max_tokens
    if request.limits.stop:
        body["stop"] = list(request.limits.stop)
    return body


def _message(message: common_pb2.Message) -> dict[str, str]:
    made = {"role": message.role, "content": message.content}
    if message.name:
        made["name"] = message.name
    return made


def _is_object(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw).lstrip()[:1] == b"{"
