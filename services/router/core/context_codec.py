"""A kept context as bytes: segments that follow one another, each packed with what came before it as its dictionary.

    ┌ opening ─────┐┌ turns ────────────────┐┌ turns ───────┐
    │ SC 1 129 …   ││ SC 1 1 …              ││ SC 1 1 …     │    the last one is packed anew with the next turn while it is short,
    └──────────────┘└───────────────────────┘└──────────────┘    so a turn costs as much as it is long, not as the context is

    "SC"  version u8  codec u8 (0 as it is, 1 LZ4 block, 2 the same behind the name of a dictionary; + 128: an opening)
          raw bytes u32  packed bytes u32  xxh64 of the raw u64

A dictionary of the tenant's (see `context_dictionary`) stands before all text; its name are the 8 bytes of its xxh64. The opening
are the system messages: the sessions of a tenant share it, so it is by itself. Little-endian. LZ4-HC, since text of this length
gives plain LZ4 a third less (docs/contexts.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

import xxhash
from lz4.block import LZ4BlockError, compress, decompress

_HEAD: Final = struct.Struct("<2sBBIIQ")
HEAD_BYTES: Final = _HEAD.size
_MAGIC: Final = b"SC"
_VERSION: Final = 1
_AS_IT_IS: Final = 0
_LZ4: Final = 1
_NAMED: Final = 2
_NAME_BYTES: Final = 8
_OPENING: Final = 128
# LZ4 looks back no further.
_REACH_BYTES: Final = 65_536
_LEAST_BYTES: Final = 256
_LEAST_GAIN: Final = 0.1
_LEVEL: Final = 9
# With a dictionary the higher ones take a third more time and save nothing.
_NAMED_LEVEL: Final = 6
# Longer ones are packed by plain LZ4: the loop must not stand still for one of them.
_MOST_HC_BYTES: Final = 65_536
# A last segment below this is packed anew with the next turn.
OPEN_BYTES: Final = 8_192
_NONE: Final[Mapping[bytes, bytes]] = {}


class Damaged(ValueError):
    """These bytes are no context of ours, or say that they are larger than any may be."""


def pack(raw: bytes, before: bytes = b"", *, opening: bool = False, dictionary: bytes = b"") -> bytes:
    """One segment. `before` is the raw text in front of it; `dictionary` must be there when it is unpacked."""
    flags = _OPENING if opening else 0
    codec, packed = _AS_IT_IS, raw
    if len(raw) >= _LEAST_BYTES:
        # Nothing of a dictionary is in reach behind so much text.
        codec, name = (_NAMED, name_of(dictionary)) if dictionary and len(before) < _REACH_BYTES else (_LZ4, b"")
        level = _NAMED_LEVEL if name else _LEVEL
        how = {"mode": "high_compression", "compression": level} if len(raw) <= _MOST_HC_BYTES else {}
        front = dictionary + before if name else before
        squeezed: bytes = name + compress(raw, store_size=False, dict=front[-_REACH_BYTES:], **how)
        if len(squeezed) <= len(raw) * (1 - _LEAST_GAIN):
            packed = squeezed
        else:
            codec = _AS_IT_IS
    return _HEAD.pack(_MAGIC, _VERSION, codec | flags, len(raw), len(packed), xxhash.xxh64_intdigest(raw)) + packed


def split(data: bytes) -> list[bytes]:
    """The segments of a row of them. Raises Damaged."""
    segments: list[bytes] = []
    at = 0
    while at < len(data):
        _, size = _sizes(data, at)
        segments.append(data[at : at + HEAD_BYTES + size])
        at += HEAD_BYTES + size
    if at != len(data):
        raise Damaged("the last segment is cut")
    return segments


def name_of(dictionary: bytes) -> bytes:
    """What segments call a dictionary."""
    return xxhash.xxh64_digest(dictionary)


def dictionaries_of(segments: Iterable[bytes]) -> set[bytes]:
    """The names of those that are needed to unpack."""
    return {
        segment[HEAD_BYTES : HEAD_BYTES + _NAME_BYTES]
        for segment in segments
        if len(segment) >= HEAD_BYTES + _NAME_BYTES and segment[3] & ~_OPENING == _NAMED
    }


def unpack(segments: Iterable[bytes], limit_bytes: int, dictionaries: Mapping[bytes, bytes] = _NONE) -> list[bytes]:
    """The raw text of each segment; `dictionaries` by name. Raises Damaged, also where one of them is missing, and where the
    texts would be longer than `limit_bytes` together.
    """
    texts: list[bytes] = []
    before, left = b"", limit_bytes
    for segment in segments:
        raw_bytes, packed_bytes = _sizes(segment, 0)
        left -= raw_bytes
        if left < 0:
            raise Damaged(f"more than {limit_bytes} bytes")
        if len(segment) != HEAD_BYTES + packed_bytes:
            raise Damaged("a segment has another length than it says")
        text = _text(segment, before, raw_bytes, dictionaries)
        texts.append(text)
        before = (before + text)[-_REACH_BYTES:]
    return texts


def is_opening(segment: bytes) -> bool:
    """Its text is a context's system messages."""
    return len(segment) > 3 and segment[:2] == _MAGIC and bool(segment[3] & _OPENING)


def raw_bytes_of(segment: bytes) -> int:
    """How long its text is. Raises Damaged."""
    return _sizes(segment, 0)[0]


def _text(segment: bytes, before: bytes, raw_bytes: int, dictionaries: Mapping[bytes, bytes]) -> bytes:
    codec, digest = segment[3] & ~_OPENING, _HEAD.unpack_from(segment)[5]
    packed = segment[HEAD_BYTES:]
    if codec == _NAMED:
        dictionary = dictionaries.get(packed[:_NAME_BYTES])
        if dictionary is None:
            raise Damaged("its dictionary is gone")
        packed, before = packed[_NAME_BYTES:], (dictionary + before)[-_REACH_BYTES:]
    if codec == _AS_IT_IS:
        text = packed
    elif codec in (_LZ4, _NAMED):
        try:
            text = decompress(packed, uncompressed_size=raw_bytes, dict=before)
        except (LZ4BlockError, ValueError):
            raise Damaged("no LZ4 block") from None
    else:
        raise Damaged(f"codec {codec}")
    if len(text) != raw_bytes or xxhash.xxh64_intdigest(text) != digest:
        raise Damaged("its text is another one")
    return text


def _sizes(data: bytes, at: int) -> tuple[int, int]:
    """Raw and packed bytes of the segment at a place."""
    if len(data) - at < HEAD_BYTES:
        raise Damaged("a segment's head is cut")
    magic, version, _, raw_bytes, packed_bytes, _ = _HEAD.unpack_from(data, at)
    if magic != _MAGIC or version != _VERSION:
        raise Damaged("no segment of this version")
    return raw_bytes, packed_bytes
