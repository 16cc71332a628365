"""Ids: UUIDv7 for generations, random hex for what must not be guessed."""

from __future__ import annotations

import secrets
import time
import uuid

from streamway.runtime.shapes import is_generation_id

__all__ = ["is_generation_id", "new_epoch", "new_generation_id", "new_secret_id"]


def new_generation_id() -> str:
    """UUIDv7 (RFC 9562 §5.7): 48 bits of Unix milliseconds, then 74 random bits; sorts by time of creation."""
    random = secrets.randbits(74)
    value = (
        (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | (random >> 62) << 64 | 0b10 << 62 | random & ((1 << 62) - 1)
    )
    return str(uuid.UUID(int=value))


def new_secret_id() -> str:
    """128 random bits as 32 hex digits."""
    return secrets.token_hex(16)


def new_epoch(attempt: int) -> int:
    """An epoch for one engine call: the attempt number with 20 random bits behind it, so that it is never used twice."""
    return attempt << 20 | secrets.randbits(20)
