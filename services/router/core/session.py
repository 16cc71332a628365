"""The affinity key of a request, as far as a router can see one: docs/design.md §6."""

from __future__ import annotations

import re

import xxhash

from streamway.v1 import common_pb2

PREFIX_BYTES = 1024
_KEY = re.compile(r"[0-9a-f]{16}")


def session_key(request: common_pb2.GenerationRequest) -> str:
    """16 hex digits, or empty when there is nothing to go by.

    A key that an edge made, or that a client was told and sends back, stays as it is; any other explicit id is hashed; without
    one the beginning of the prompt decides, so that requests with the same system prompt meet the same KV cache.
    """
    if request.session:
        return request.session if _KEY.fullmatch(request.session) else hash_key(request.session.encode())
    prefix = _prompt_prefix(request)
    if not prefix:
        return ""
    return hash_key(b"\0".join((request.tenant.encode(), request.model.encode(), prefix)))


def hash_key(value: bytes) -> str:
    """xxh3_64 as 16 hex digits."""
    return xxhash.xxh3_64_hexdigest(value)


def _prompt_prefix(request: common_pb2.GenerationRequest) -> bytes:
    if not request.messages:
        return request.openai_body[:PREFIX_BYTES]
    prefix = b""
    for message in request.messages:
        # A slice by characters first: nobody encodes a 12 MB prompt to look at its beginning.
        prefix += message.role.encode() + b"\0" + message.content[:PREFIX_BYTES].encode() + b"\0"
        # What follows the first question grows with each turn, and the second turn must find the worker of the first.
        if message.role == "user" or len(prefix) >= PREFIX_BYTES:
            break
    return prefix[:PREFIX_BYTES]
