"""Segments of a kept context, and what is refused as one."""

from __future__ import annotations

import struct

import pytest

from services.router.core import context_codec as codec
from services.router.core.context_codec import Damaged, pack, split, unpack

_TEXT = b'{"role":"user","content":"Which train goes to the coast on Sundays, and where do I change?"},' * 12
_LIMIT = 1_000_000


def test_a_row_of_segments_gives_the_texts_back() -> None:
    opening = pack(b"You are a helpful assistant. " * 20, opening=True)
    first = pack(_TEXT, b"You are a helpful assistant. " * 20)
    assert unpack(split(opening + first), _LIMIT) == [b"You are a helpful assistant. " * 20, _TEXT]
    assert [codec.is_opening(segment) for segment in (opening, first)] == [True, False]


def test_nothing_is_compressed_below_256_bytes_or_for_less_than_a_tenth() -> None:
    short, noise = b"a" * 255, bytes((number * 7919 >> 3) % 256 for number in range(3000))
    assert pack(short)[codec.HEAD_BYTES :] == short
    assert len(pack(b"a" * 256)) < 100
    assert len(pack(noise)) <= len(noise) + codec.HEAD_BYTES


def test_what_was_said_before_is_the_dictionary() -> None:
    assert len(pack(_TEXT[:900], _TEXT)) < len(pack(_TEXT[:900])) / 2
    alone = pack(_TEXT[:900], _TEXT)
    with pytest.raises(Damaged):
        unpack([alone], _LIMIT)


def test_a_changed_byte_anywhere_is_noticed() -> None:
    whole = pack(_TEXT)
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0x55
        if at == 3:
            continue  # the flag of an opening alone changes no text
        with pytest.raises(Damaged):
            unpack(split(bytes(broken)), _LIMIT)


def test_a_head_that_promises_more_than_may_be_is_refused_before_anything_is_unpacked() -> None:
    bomb = struct.pack("<2sBBIIQ", b"SC", 1, 1, 2**32 - 1, 10, 0) + b"\0" * 10
    with pytest.raises(Damaged, match="more than"):
        unpack([bomb], _LIMIT)
    half = pack(b"a" * 600_000)
    with pytest.raises(Damaged, match="more than"):
        unpack([half, half], _LIMIT)


def test_a_cut_row_is_refused() -> None:
    whole = pack(_TEXT)
    for length in (1, codec.HEAD_BYTES - 1, codec.HEAD_BYTES, len(whole) - 1):
        with pytest.raises(Damaged):
            split(whole[:length])
