"""Writes small GGUF files."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any


def string(text: str) -> bytes:
    """A string as the format has it."""
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(given: Any) -> bytes:
    """A value with its type in front of it."""
    if isinstance(given, str):
        return struct.pack("<I", 8) + string(given)
    if isinstance(given, int):
        return struct.pack("<II", 4, given)
    kind = value(given[0])[:4] if given else struct.pack("<I", 4)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(given)) + b"".join(value(one)[4:] for one in given)


def gguf(
    pairs: Mapping[str, Any], tensors: Sequence[tuple[str, tuple[int, ...], int]] = (), data: bytes | None = None
) -> bytes:
    """A file of version 3 with these settings and 32-bit float tensors of one dimension and an offset, and its data."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(string(name) + value(given) for name, given in pairs.items())
    end = 0
    for name, shape, offset in tensors:
        head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", 0, offset)
        size = 4
        for side in shape:
            size *= side
        end = max(end, offset + size)
    head += b"\0" * (-len(head) % 32)
    return head + (bytes(end) if data is None else data)
