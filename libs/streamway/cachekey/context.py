"""What a question is asked in: everything of a request but the words of its last turn.

Only requests with an equal context may share an answer by likeness: the same tenant, model, system prompt, turns before, sampling
and response format.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from streamway.cachekey.canonical import encode
from streamway.cachekey.key import VERSION

_CONTEXT: Final = b"context"
_PARTITION: Final = b"partition"
_SYSTEM: Final = frozenset({"system", "developer"})
_TURNS: Final = frozenset({"user", "assistant"})


def question_of(form: dict[str, Any]) -> str:
    """The text of the last turn, if a user wrote it and it is nothing but text; else empty. `form` is from `canonical_form`."""
    messages = form.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user":
        return ""
    content = last.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = content[0]
        content = part.get("text") if part.get("type") == "text" else None
    return content if isinstance(content, str) else ""


def context_of(form: dict[str, Any]) -> dict[str, Any]:
    """The form of a request that has a question without its words. What the last turn has beside them, as a name, stays in."""
    *before, last = form["messages"]
    rest = {name: value for name, value in last.items() if name != "content"}
    return {**form, "messages": [*before, rest]}


def without_turns(form: dict[str, Any]) -> dict[str, Any]:
    """The form of a request that has a question without the turns before it: what the system says stays. One with other roles
    than system, developer, user and assistant stays as it is.
    """
    *before, last = form["messages"]
    roles = [message.get("role") if isinstance(message, dict) else None for message in before]
    if not set(roles) <= _SYSTEM | _TURNS:
        return form
    kept = [message for message, role in zip(before, roles, strict=True) if role in _SYSTEM]
    return {**form, "messages": [*kept, last]}


def context_key(tenant: str, model: str, form: dict[str, Any]) -> bytes:
    """32 bytes: what a question is asked in, of a request that has one. Raises NotCanonical."""
    told = encode(tenant) + encode(model) + encode(context_of(form))
    return hashlib.blake2b(VERSION + _CONTEXT + told, digest_size=32).digest()


def partition_key(context: bytes, encoder: str) -> bytes:
    """32 bytes: where the vectors of a context are that `encoder` made. Apart from the context, so that a stored one outlives
    an encoder.
    """
    return hashlib.blake2b(VERSION + _PARTITION + context + encode(encoder), digest_size=32).digest()
