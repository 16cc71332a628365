"""What a request that comes to a worker directly must hold. What comes through a lane was checked by the router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamway.errors import InvalidArgument, ModelNotFound
from streamway.runtime.ids import is_generation_id
from streamway.v1 import common_pb2

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_RANGES: Final = (
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("n", 1, 16),
)
_MOST_STOPS: Final = 16
_MOST_METADATA: Final = 16
_MOST_BYTES: Final = 256


def check_request(request: common_pb2.GenerationRequest, served: Sequence[str], shown: Sequence[str]) -> None:
    """Raises InvalidArgument, with the field at fault, or ModelNotFound, which tells of `shown`, the caller's models."""
    if request.generation and not is_generation_id(request.generation):
        raise InvalidArgument("generation", "must be a UUID of 36 characters in lower case, or empty")
    if not request.model:
        raise InvalidArgument("model", "is missing")
    if request.model not in served:
        raise ModelNotFound(request.model, list(shown))
    if not request.messages and not request.openai_body:
        raise InvalidArgument("messages", "is empty")
    for number, message in enumerate(request.messages):
        if message.role not in _ROLES:
            raise InvalidArgument(f"messages[{number}].role", f"must be one of {', '.join(sorted(_ROLES))}")
    _check_sampling(request.sampling)
    _check_limits(request.limits)
    _check_rest(request)


def _check_rest(request: common_pb2.GenerationRequest) -> None:
    if not -128 <= request.priority <= 127:
        raise InvalidArgument("priority", "must be −128 … 127")
    if request.HasField("context"):
        raise InvalidArgument("context", "workers keep no conversations; ask a router")
    if request.deadline_unix_ms < 0:
        raise InvalidArgument("deadline_unix_ms", "must not be negative")
    if len(request.session.encode()) > _MOST_BYTES:
        raise InvalidArgument("session", f"is longer than {_MOST_BYTES} bytes")
    entries = request.metadata.items()
    if len(entries) > _MOST_METADATA or any(len(f"{name}{value}".encode()) > _MOST_BYTES for name, value in entries):
        raise InvalidArgument("metadata", f"may hold {_MOST_METADATA} entries of {_MOST_BYTES} bytes each")


def _check_sampling(sampling: common_pb2.Sampling) -> None:
    # NaN is in no range.
    given = {field.name: value for field, value in sampling.ListFields()}
    for name, least, most in _RANGES:
        if name in given and not least <= given[name] <= most:
            raise InvalidArgument(f"sampling.{name}", f"must be {least:g} … {most:g}")
    if given.get("top_k", 0) < -1:
        raise InvalidArgument("sampling.top_k", "must be −1 or more")


def _check_limits(limits: common_pb2.Limits) -> None:
    if limits.HasField("max_tokens") and limits.max_tokens == 0:
        raise InvalidArgument("limits.max_tokens", "must be 1 or more")
    if len(limits.stop) > _MOST_STOPS:
        raise InvalidArgument("limits.stop", f"has {len(limits.stop)} entries, the most are {_MOST_STOPS}")
    for number, stop in enumerate(limits.stop):
        if not stop or len(stop.encode()) > _MOST_BYTES:
            raise InvalidArgument(f"limits.stop[{number}]", f"must have 1 … {_MOST_BYTES} bytes")
