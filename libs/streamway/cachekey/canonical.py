"""One canonical form for requests that mean the same, and its bytes.

A request with typed fields and the OpenAI body that says the same become the same form, so one entry serves every surface.

    {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.0}   body, any key order, any white space
    GenerationRequest(model="m", messages=[Message(role="user", content="hi")], sampling=Sampling(temperature=0))
        ↓
    {"messages": [{"content": "hi", "role": "user"}], "temperature": 0}

Bytes are injective: every value carries its type and its length, so no two forms meet ("a:b"+"c" is not "a"+"b:c").

    null → z      true → t    false → f    12 → i2:12    0.5 → r3:0.5    "hi" → s2:hi
    [1] → l1:i1:1                 {"a": 1} → d1:s1:ai1:1, keys in order of their UTF-8 bytes
"""

from __future__ import annotations

import json
import math
import struct
import unicodedata
from typing import Any, Final

from streamway.v1 import common_pb2

# Deeper JSON is no request anybody means.
DEEPEST: Final = 64

# Fields of the OpenAI body that cannot change the answer. Everything else, also what nobody knows yet, goes into the key.
# `model` is here because the key holds the model as resolved instead.
IGNORED_IN_BODY: Final = frozenset(
    {"model", "stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key"}
)
# What an absent field means in OpenAI's reference and on llama.cpp and vLLM alike. Temperature and top_p are not here: their
# defaults are the engine's own.
DEFAULTS: Final[dict[str, Any]] = {
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "stop": [],
    "tools": [],
    "functions": [],
    "logit_bias": {},
}


class NotCanonical(ValueError):
    """The request has no canonical form: NaN, a key twice, no JSON, too deep. It is never cached."""


def canonical_form(request: common_pb2.GenerationRequest) -> dict[str, Any]:
    """What the engine will be asked, apart from the model. Raises NotCanonical."""
    form = _from_body(request.openai_body) if request.openai_body else _from_fields(request)
    form = {name: value for name, value in form.items() if value is not None and name not in IGNORED_IN_BODY}
    if isinstance(form.get("stop"), str):
        form["stop"] = [form["stop"]]
    if isinstance(form.get("stop"), list) and all(isinstance(text, str) for text in form["stop"]):
        form["stop"] = sorted(set(form["stop"]))
    if isinstance(form.get("messages"), list):
        form["messages"] = [_message(message) for message in form["messages"]]
    return {name: value for name, value in form.items() if name not in DEFAULTS or not _same(value, DEFAULTS[name])}


def encode(value: Any, depth: int = 0) -> bytes:
    """The bytes of a JSON value; equal for equal meaning, different otherwise. Raises NotCanonical."""
    if depth > DEEPEST:
        raise NotCanonical("nested too deeply")
    if value is None:
        return b"z"
    if isinstance(value, bool):  # before int: True is one to Python
        return b"t" if value else b"f"
    if isinstance(value, str):
        try:
            return _framed(b"s", value.encode())
        except UnicodeEncodeError:
            raise NotCanonical("half a surrogate pair") from None
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, list):
        return b"l%d:" % len(value) + b"".join([encode(item, depth + 1) for item in value])
    if isinstance(value, dict):
        fields = sorted((encode(name, depth + 1), encode(item, depth + 1)) for name, item in value.items())
        return b"d%d:" % len(fields) + b"".join([name + item for name, item in fields])
    raise NotCanonical(f"{type(value).__name__} is no JSON")


def _framed(kind: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (kind, len(content), content)


def _number(value: float) -> bytes:
    """0, 0.0 and -0.0 are one number."""
    if isinstance(value, float) and not math.isfinite(value):
        raise NotCanonical("NaN and infinities are no JSON")
    if isinstance(value, int) or value.is_integer():
        return _framed(b"i", str(int(value)).encode())
    return _framed(b"r", repr(value).encode())


def _from_body(body: bytes) -> dict[str, Any]:
    try:
        form = json.loads(body, object_pairs_hook=_once_each, parse_constant=_refuse_constant)
    except NotCanonical:
        raise
    except (ValueError, RecursionError):
        raise NotCanonical("the body is not JSON") from None
    if not isinstance(form, dict):
        raise NotCanonical("the body is no JSON object")
    return form


def _from_fields(request: common_pb2.GenerationRequest) -> dict[str, Any]:
    """The typed fields, which have OpenAI's names. All that are set: also one that was added to the protos yesterday."""
    form: dict[str, Any] = {"messages": [_message_fields(message) for message in request.messages]}
    sampling, limits = request.sampling, request.limits
    for field, value in sampling.ListFields():
        form[field.name] = shortest_float32(value) if field.type == field.TYPE_FLOAT else value
    for field, value in limits.ListFields():
        form[field.name] = list(value) if field.name == "stop" else value
    return form


def _message_fields(message: common_pb2.Message) -> dict[str, Any]:
    # An empty text is a text; an empty name is none.
    return {"content": "", "role": "", **{field.name: value for field, value in message.ListFields()}}


def shortest_float32(value: float) -> float:
    """The shortest decimal that is the same 32-bit float: 0.7 of a JSON body crosses protobuf as 0.699999988079071."""
    if not math.isfinite(value):
        return value
    packed = struct.pack("<f", value)
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == packed:
            return short
    return value


def _message(message: Any) -> Any:
    """A turn with its text in NFC and with plain line ends; everything else byte by byte."""
    if not isinstance(message, dict):
        return message
    fields = {name: value for name, value in message.items() if value is not None}
    content = fields.get("content")
    if isinstance(content, str):
        fields["content"] = _text(content)
    elif isinstance(content, list):
        fields["content"] = [
            {**part, "text": _text(part["text"])}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    return fields


def _text(text: str) -> str:
    return unicodedata.normalize("NFC", text).replace("\r\n", "\n")


def _same(value: Any, default: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(value, bool) == isinstance(default, bool) and bool(value == default)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Engines differ in which of two equal keys counts."""
    form = dict(pairs)
    if len(form) != len(pairs):
        raise NotCanonical("a key stands twice")
    return form


def _refuse_constant(name: str) -> Any:
    raise NotCanonical(f"{name} is no JSON")
