"""Puts serialised events into a response without touching what is in them.

    response   0A <length> <stamp> <event>   0A <length> <stamp> <event>   …
    stamp      08 <subscription>                 on Attach
               12 <length> <generation>          on a stream of one generation

0A is field 1, `events`, of AttachResponse and of InferenceServiceGenerateResponse; 08 and 12 are fields 1 and 2 of Event. The
fields of a message may come in any order, so that what differs from reader to reader can stand before what does not. An event
is serialised once, however many read it, and kept in a tenth of the memory that a message object takes.
"""

from __future__ import annotations

from typing import Final


def varint(number: int) -> bytes:
    """Protobuf's encoding of a number ≥ 0: seven bits a byte, lowest first, the high bit set on all but the last."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def subscription_stamp(number: int) -> bytes:
    """`Event.subscription`; nothing for 0."""
    return b"\x08" + varint(number) if number else b""


def generation_stamp(generation: str) -> bytes:
    """`Event.generation`."""
    name = generation.encode()
    return b"\x12" + varint(len(name)) + name


def framed(raw: bytes) -> bytes:
    """An event as the only one of a response, or of a journal's payload, where field 1 are the events too."""
    length = len(raw)
    return (_HEADS[length] if length < _FEW else b"\x0a" + varint(length)) + raw


def head(length: int) -> bytes:
    """What stands before a stamped event of this length."""
    return _HEADS[length] if length < _FEW else b"\x0a" + varint(length)


# Most events are short.
_FEW: Final = 512
_HEADS: Final = [b"\x0a" + varint(length) for length in range(_FEW)]
