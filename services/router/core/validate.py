"""Checks a generation request before anything is done for it. Each refusal names the field."""

from __future__ import annotations

import math
from typing import Final

from streamway.errors import DeadlineExceeded, InvalidArgument, Malformed, TooLarge
from streamway.runtime.shapes import is_generation_id
from streamway.v1 import common_pb2

ROLES: Final = ("system", "user", "assistant", "tool")
_MOST_CHOICES: Final = 16
_MOST_STOPS: Final = 16
_MOST_METADATA: Final = 16
_TEXT_BYTES: Final = 256
_CONTEXT_ID_BYTES: Final = 64
_RANGES: Final = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}


def check(
    request: common_pb2.GenerationRequest, now_unix_ms: float, size_bytes: int, limit_bytes: int, setting: str
) -> None:
    """Raises InvalidArgument, Malformed, TooLarge or DeadlineExceeded.

    `size_bytes` of prompt are compared with `limit_bytes`, which `setting` configures. A field that an engine may judge
    better than we (roles and contents inside `openai_body`) is left to it.
    """
    if not is_generation_id(request.generation):
        raise InvalidArgument("generation", "must be a UUID of 36 lower-case characters")
    _check_text("model", request.model, empty="name the model to ask")
    _check_text("session", request.session)
    if size_bytes > limit_bytes:
        raise TooLarge("the prompt", limit_bytes, setting)
    _check_messages(request)
    _check_sampling(request.sampling)
    _check_limits(request.limits)
    if not -128 <= request.priority <= 127:
        raise InvalidArgument("priority", f"{request.priority} is outside −128 … 127")
    _check_metadata(request)
    _check_enum("cache", common_pb2.CachePolicy, request.cache)
    _check_enum("on_disconnect", common_pb2.OnDisconnect, request.on_disconnect)
    _check_enum("durability", common_pb2.Durability, request.durability)
    _check_text("idempotency_key", request.idempotency_key)
    if request.HasField("context"):
        check_context_id(request.context.id)
        _check_enum("context.use", common_pb2.ContextUse, request.context.use)
        if not request.context.use:
            raise InvalidArgument(
                "context.use", "say whether the messages start the conversation or are appended to it"
            )
    if request.deadline_unix_ms < 0:
        raise InvalidArgument("deadline_unix_ms", "must not be negative")
    if request.deadline_unix_ms and request.deadline_unix_ms <= now_unix_ms:
        raise DeadlineExceeded("the request was on its way to the router")


def check_context_id(id_: str) -> None:
    """Raises InvalidArgument."""
    if not 0 < len(id_.encode()) <= _CONTEXT_ID_BYTES:
        raise InvalidArgument("context.id", f"name the conversation, in at most {_CONTEXT_ID_BYTES} bytes")


def _check_messages(request: common_pb2.GenerationRequest) -> None:
    if request.openai_body:
        if request.openai_body.lstrip()[:1] != b"{":
            raise Malformed("openai_body", "it is not a JSON object")
        return
    if not request.messages:
        raise InvalidArgument("messages", "must not be empty")
    for index, message in enumerate(request.messages):
        if message.role not in ROLES:
            given = message.role[:40]
            raise InvalidArgument(f"messages[{index}].role", f"{given!r} is none of {', '.join(ROLES)}")


def _check_sampling(sampling: common_pb2.Sampling) -> None:
    for name, (least, most) in _RANGES.items():
        if not sampling.HasField(name):  # type: ignore[arg-type]
            continue
        value: float = getattr(sampling, name)
        if not math.isfinite(value) or not least <= value <= most:
            raise InvalidArgument(f"sampling.{name}", f"{value:g} is outside {least:g} … {most:g}")
    if sampling.HasField("top_k") and sampling.top_k < -1:
        raise InvalidArgument("sampling.top_k", "must be −1 (off) or more")
    if sampling.HasField("n") and not 1 <= sampling.n <= _MOST_CHOICES:
        raise InvalidArgument("sampling.n", f"{sampling.n} is outside 1 … {_MOST_CHOICES}")


def _check_limits(limits: common_pb2.Limits) -> None:
    if limits.HasField("max_tokens") and not 1 <= limits.max_tokens < 1 << 31:
        raise InvalidArgument("limits.max_tokens", "must be between 1 and 2³¹ − 1")
    if len(limits.stop) > _MOST_STOPS:
        raise InvalidArgument("limits.stop", f"at most {_MOST_STOPS} texts")
    for index, stop in enumerate(limits.stop):
        _check_text(f"limits.stop[{index}]", stop, empty="must not be empty")


def _check_metadata(request: common_pb2.GenerationRequest) -> None:
    if len(request.metadata) > _MOST_METADATA:
        raise InvalidArgument("metadata", f"at most {_MOST_METADATA} entries")
    for key, value in request.metadata.items():
        _check_text("metadata", key, empty="a name must not be empty")
        _check_text(f"metadata[{key}]", value)


def _check_text(field: str, text: str, *, empty: str = "") -> None:
    if empty and not text:
        raise InvalidArgument(field, empty)
    if len(text.encode()) > _TEXT_BYTES:
        raise InvalidArgument(field, f"is longer than {_TEXT_BYTES} bytes")


def _check_enum(field: str, kind: object, value: int) -> None:
    if value not in kind.values():  # type: ignore[attr-defined]
        raise InvalidArgument(field, f"{value} is no known value")
