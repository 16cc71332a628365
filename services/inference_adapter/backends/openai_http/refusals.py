"""What an engine's error body means."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import Any, Final

from streamway.errors import ContextLengthExceeded, EngineFailed, EngineOverloaded, EngineRejected, StreamwayError

MESSAGE_LIMIT: Final = 2000
# Of an engine that has too much to do and does not say until when.
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 3600.0
# How OpenAI, llama.cpp and vLLM say that a prompt is too long.
_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW_TEXTS: Final = ("maximum context length", "exceeds the available context size", "maximum model length")


def seconds_of(retry_after: str, unix_s: float) -> float | None:
    """What a Retry-After header asks for: seconds, or a date. None for none that can be read; an hour at most."""
    if retry_after.isascii() and retry_after.isdecimal():
        seconds = float(retry_after[:9])
    else:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - unix_s
        except ValueError:
            return None
    return min(_LONGEST_RETRY_S, max(0.0, seconds))


def from_response(status: int, body: bytes, worker: str, retry_after_s: float | None = None) -> StreamwayError:
    """The error for a response that is not 200. `retry_after_s`: when the engine wants to be asked again, if it says so."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = body.decode("utf-8", "replace").strip()
    return _from_body(status, parsed, worker, retry_after_s)


def from_whole(body: bytes, worker: str) -> StreamwayError:
    """The error for a JSON document with a good status, where a stream was asked for: what it says, if it is an error."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict) and (parsed.get("error") is not None or parsed.get("object") == "error"):
        return from_stream(parsed, worker)
    return EngineFailed(worker, "it answered with application/json instead of an event stream")


def from_stream(body: dict[str, Any], worker: str) -> StreamwayError:
    """The error for one that the engine reported in its stream; without a status of its own it is the engine's fault."""
    inner = body.get("error")
    code = (inner if isinstance(inner, dict) else body).get("code")
    return _from_body(code if isinstance(code, int) else 500, body, worker)


def _from_body(status: int, body: Any, worker: str, retry_after_s: float | None = None) -> StreamwayError:
    message, codes, field = _said(body)
    if status == 429 or (status == 503 and retry_after_s is not None):
        return EngineOverloaded(worker, status, _RETRY_S if retry_after_s is None else retry_after_s, message)
    if 400 <= status < 500:
        if codes & _OVERFLOW_CODES or any(text in message for text in _OVERFLOW_TEXTS):
            return ContextLengthExceeded(message)
        if status in {401, 403}:
            # The credentials are the mesh's, so the client can do nothing about it, and the message may show them.
            return EngineFailed(worker, f"it refuses our credentials (status {status}); check the setting engine_token")
        return EngineRejected(message or f"the engine answered {status}", status, field)
    return EngineFailed(worker, f"it answered {status}" + (f": {message}" if message else ""))


def _said(body: Any) -> tuple[str, set[str], str]:
    """Message, codes and field at fault out of OpenAI's, vLLM's, llama.cpp's or FastAPI's shape."""
    said = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(said, dict):
        return str(said or "")[:MESSAGE_LIMIT], set(), ""
    message = said.get("message") or said.get("detail") or ""
    text = message if isinstance(message, str) else json.dumps(message)
    codes = {value for value in (said.get("code"), said.get("type")) if isinstance(value, str)}
    field = said.get("param")
    return text[:MESSAGE_LIMIT], codes, field[:100] if isinstance(field, str) else ""
