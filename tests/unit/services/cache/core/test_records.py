"""Bytes of the store: what was packed comes back, anything else is damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.records import (
    Alike,
    Change,
    Damaged,
    Row,
    StoredEntry,
    pack_changes,
    pack_entry,
    pack_row,
    unpack_changes,
    unpack_entry,
    unpack_row,
)

VECTOR = np.array([0.6, 0.8], "<f4")
ALIKE = Alike(b"c" * 32, "how", "e5", VECTOR.tobytes())
ENTRY = StoredEntry("id", "t", b"k" * 32, "m", ("user:a",), 1, 2, 3.0, b"body", b"f", ALIKE)


def test_what_was_packed_comes_back() -> None:
    assert unpack_entry(pack_entry(ENTRY)) == ENTRY
    row = Row(b"k", "m", ("a", "b"), 7)
    assert pack_row(row, 12).startswith(b"12 ")
    assert unpack_row(pack_row(row, 12)) == row
    change = Change("added", "t", ("id",), (b"k",), held_bytes=5)
    told = unpack_changes(pack_changes("me", [change]))
    assert (told.origin, told.changes) == ("me", (change,))


@given(st.data())
def test_h6_an_entry_with_any_byte_changed_is_damaged(data: st.DataObject) -> None:
    value = bytearray(pack_entry(ENTRY))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        unpack_entry(bytes(value))


@pytest.mark.parametrize("unpack", [unpack_entry, unpack_row, unpack_changes])
@given(value=st.binary(max_size=60))
def test_h6_nothing_but_damaged_is_raised(unpack: Callable[[bytes], Any], value: bytes) -> None:
    with contextlib.suppress(Damaged):
        unpack(value)


def test_h6_a_vector_is_given_only_for_the_encoder_that_made_it_and_only_if_it_is_a_direction() -> None:
    found = ALIKE.vector_of("e5")
    assert found is not None
    assert found.tolist() == VECTOR.tolist()
    assert ALIKE.vector_of("other") is None
    for bad in (np.array([np.nan, 1], "<f4"), np.array([3, 4], "<f4"), np.zeros(2, "<f4"), np.zeros(0, "<f4")):
        assert Alike(b"c", "how", "e5", bad.tobytes()).vector_of("e5") is None
    assert Alike(b"c", "how", "e5", b"abc").vector_of("e5") is None
