"""What an idempotency key stands for: the generation it began, and a digest of the request."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from streamway.v1 import common_pb2

# What differs between two sendings of the same request: names, times, traces, a session key drawn at each connection, what
# the tenant is entitled to, to which the priority is lowered, and how fast a stored answer comes.
_NOT_THE_REQUEST = (
    "generation",
    "session",
    "tenant",
    "deadline_unix_ms",
    "traceparent",
    "baggage",
    "metadata",
    "idempotency_key",
    "entitlement",
    "priority",
    "load_tokens",
    "replay",
)


class Claim(NamedTuple):
    """The value kept under a key."""

    generation: str
    digest: str

    def __str__(self) -> str:
        return f"{self.generation}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Claim:
        generation, _, digest = text.partition(":")
        return cls(generation, digest)


def digest_of(request: common_pb2.GenerationRequest) -> str:
    """Tells whether two requests ask for the same. Defaults must be filled in."""
    bare = common_pb2.GenerationRequest()
    bare.CopyFrom(request)
    for name in _NOT_THE_REQUEST:
        bare.ClearField(name)  # type: ignore[arg-type] # names of fields
    return hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()


def digest_of_key(key: str) -> str:
    """Keys may be of any form; this is what is stored."""
    return hashlib.sha256(key.encode()).hexdigest()
