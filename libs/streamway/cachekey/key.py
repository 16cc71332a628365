"""The key of a request: a hash over the canonical form of everything that can change its answer."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from streamway.cachekey.canonical import encode

# In front of every key: a change of the rules starts cold instead of meeting old entries.
VERSION: Final = b"sc1"

# Every field of GenerationRequest is on one of these two lists; a test fails for a field that is on neither.
IN_KEY: Final = frozenset({"model", "messages", "sampling", "limits", "tenant", "openai_body"})
IGNORED: Final = frozenset(
    {
        "generation",  # the id of this answer
        "session",  # where it runs
        "priority",  # when it runs
        "deadline_unix_ms",  # how long the caller waits
        "traceparent",
        "baggage",
        "metadata",  # for logs and traces
        "cache",  # whether to look, not for what
        "on_disconnect",
        "durability",
        "idempotency_key",
        "entitlement",  # what the tenant may have, not what it asks
        "load_tokens",  # what it is counted with
        "cache_control",  # whether to look and to keep, not for what
        "replay",  # how fast it comes
        "context",  # what is kept is among the messages by the time anybody looks
    }
)


def exact_key(tenant: str, model: str, form: dict[str, Any]) -> bytes:
    """32 bytes. `tenant` is the authenticated one, `model` the resolved one, `form` from `canonical_form`.

    BLAKE2b-256 over the version and the length-prefixed fields. Raises NotCanonical.
    """
    return hashlib.blake2b(VERSION + encode(tenant) + encode(model) + encode(form), digest_size=32).digest()
