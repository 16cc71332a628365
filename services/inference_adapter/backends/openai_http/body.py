"""The JSON that an engine is asked with."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from streamway.errors import Malformed
from streamway.v1 import common_pb2

_Float = Literal["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"]
_Integer = Literal["top_k", "seed", "n"]
# Values stay the bytes that the client sent: numbers, key order and escapes reach the engine as they were.
_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_TRUE: Final = msgspec.Raw(b"true")
_FLOATS: Final[tuple[_Float, ...]] = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty")
_INTEGERS: Final[tuple[_Integer, ...]] = ("top_k", "seed", "n")


def build(request: common_pb2.GenerationRequest, model: str, *, keep_own_fields: bool = False) -> bytes:
    """The body of a streamed chat completion for `model`, the engine's own name of it.

    Of a client's original body only the model, `stream` and `stream_options` are set, and fields named `streamway…` are left
    out: engines refuse what they do not know. Raises Malformed when that body is not a JSON object.
    """
    if not request.openai_body:
        return _encode(
            {**typed_fields(request), "model": model, "stream": True, "stream_options": {"include_usage": True}}
        )
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
    return _encode(body)


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
