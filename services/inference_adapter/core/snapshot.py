"""What is kept of a session after each turn: who has its KV, and what would fill another worker's.

snapshot:<model>   JSON: worker, at_ms, prefix, prompt_tokens, answer_tokens, context_bytes, sampling
context:<model>    LZ4 block of the context; absent when it is larger than is allowed
"""

from __future__ import annotations

from typing import Final

import msgspec
from lz4.block import LZ4BlockError, compress, decompress

SNAPSHOT: Final = "snapshot:"
CONTEXT: Final = "context:"
# A context is looked at no further than this, packed or not: about two million tokens.
MOST_CONTEXT_BYTES: Final = 8 * 1024 * 1024
_SIZE_BYTES: Final = 4  # of the block's head: the size it unpacks to


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One session of one model when a turn had ended.

    `prefix` names the context (`context.digest`). Tokens are the engine's count, 0 where it has none; `context_bytes` is the
    size before packing. `sampling` holds what the turn set, by OpenAI's names: the session's defaults.
    """

    worker: str
    at_ms: int
    prefix: str
    prompt_tokens: int = 0
    answer_tokens: int = 0
    context_bytes: int = 0
    sampling: dict[str, float] = {}

    def encode(self) -> bytes:
        """JSON."""
        return msgspec.json.encode(self)


def read(raw: bytes) -> Snapshot | None:
    """None for what is no snapshot."""
    try:
        return msgspec.json.decode(raw, type=Snapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def pack(context: bytes, most_bytes: int) -> bytes | None:
    """A context as it is kept; None when it would take more than `most_bytes`."""
    if not context or len(context) > MOST_CONTEXT_BYTES:
        return None
    packed: bytes = compress(context)
    return packed if len(packed) <= most_bytes else None


def unpack(packed: bytes) -> bytes | None:
    """None for what is no context, and for one that says it is larger than any may be."""
    if not 0 < int.from_bytes(packed[:_SIZE_BYTES], "little") <= MOST_CONTEXT_BYTES:
        return None
    try:
        context: bytes = decompress(packed)
    except (LZ4BlockError, ValueError):
        return None
    return context
