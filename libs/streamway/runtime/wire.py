"""Protobuf's wire format, for messages that are put together without message objects.

A message within a message is copied by writing and reading all of it, at each level; its size is found by writing it.
"""

from __future__ import annotations

from collections.abc import Iterable


def varint(number: int) -> bytes:
    """The encoding of a number ≥ 0: seven bits a byte, lowest first, the high bit set on all but the last."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def part(number: int, *pieces: bytes) -> bytes:
    """A field that holds a message, a text or bytes; `pieces` one after the other are its content.

    Parts of one message may be joined in any order, and with what message objects have written of it.
    """
    return b"".join((varint(number << 3 | 2), varint(sum(map(len, pieces))), *pieces))


def repeated(number: int, contents: Iterable[bytes]) -> bytes:
    """The same field once for each of the contents."""
    tag = varint(number << 3 | 2)
    return b"".join(piece for content in contents for piece in (tag, varint(len(content)), content))
