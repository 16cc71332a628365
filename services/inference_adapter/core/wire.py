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

from streamway.runtime.wire import varint


def epoch_head(epoch: int) -> bytes:
    """What the events of one engine call begin with."""
    return b"\x18" + varint(epoch) + b"\x20" if epoch else b"\x20"


def plain_token(head: bytes, first: int, position: int, text: str, index: int, units: int) -> bytes:
    """The event of a piece that is text and nothing else, byte for byte as protobuf writes it; that takes seven times as long.

    `head` is the epoch's; `first` is 0 where the event has one position only, and never above it; `text` is not empty. Per-token
    path.

        18 <epoch>  20 <position>  28 <first position>  32 <length> ┬ 0A <length> <text>  18 <first token's index>  38 <units>
                                                                    └ the token
    """
    data = text.encode()
    size = len(data)
    if 0 < index < _MANY and position < _MANY and size < _SHORT and units < 128:
        # Nearly every one. Numbers below 128 are their own encoding.
        numbers = _NUMBERS
        counted = numbers[index]
        length = size + len(counted) + 5
        if first:
            return _MERGED % (head, numbers[position], numbers[first], length, size, data, counted, units)
        return _SINGLE % (head, numbers[position], length, size, data, counted, units)
    token = b"\x0a%b%b%b8%b" % (
        varint(size),
        data,
        b"\x18" + varint(index) if index else b"",
        varint(units),
    )
    merged = b"(" + varint(first) if first else b""
    return b"%b%b%b2%b%b" % (head, varint(position), merged, varint(len(token)), token)


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


_SINGLE: Final = b"%b%b2%c\n%c%b\x18%b8%c"
_MERGED: Final = b"%b%b(%b2%c\n%c%b\x18%b8%c"
_SHORT: Final = 100
_MANY: Final = 4096
_NUMBERS: Final = tuple(varint(value) for value in range(_MANY))
# Most events are short.
_FEW: Final = 512
_HEADS: Final = [b"\x0a" + varint(length) for length in range(_FEW)]
