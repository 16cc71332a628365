"""The matrix whose slots are used again, against a plain list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.core.semantic.flat import FlatIndex

DIMS = 4


def unit(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)
    return vector / np.linalg.norm(vector)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60), st.integers(0, 99), st.integers(1, 7))
def test_it_finds_what_a_plain_list_finds(steps: list[tuple[bool, int]], asked: int, most: int) -> None:
    index, slots = FlatIndex(DIMS), dict[int, int]()
    for adds, seed in steps:
        if adds and seed not in slots:
            slots[seed] = index.add(unit(seed))
        elif not adds and seed in slots:
            index.remove(slots.pop(seed))
    question = unit(1000 + asked)
    wanted = sorted(((float(unit(seed) @ question), slot) for seed, slot in slots.items()), reverse=True)[:most]
    found = index.search(question, most)
    assert len(index) == len(slots)
    assert [near for _, near in found] == pytest.approx([near for near, _ in wanted], abs=1e-6)
    assert {slot for slot, _ in found} == {slot for _, slot in wanted}


def test_a_freed_slot_is_taken_before_the_matrix_grows() -> None:
    index = FlatIndex(DIMS)
    slots = [index.add(unit(seed)) for seed in range(8)]
    size = index.size_bytes
    for turn in range(100):
        index.remove(slots[turn % 8])
        slots[turn % 8] = index.add(unit(turn))
    assert index.size_bytes == size == 8 * DIMS * 4


def test_another_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="among those of 4"):
        FlatIndex(DIMS).add(np.zeros(5, np.float32))


def test_an_empty_index_finds_nothing() -> None:
    index = FlatIndex(DIMS)
    assert index.search(unit(1), 5) == []
    index.remove(index.add(unit(1)))
    assert index.search(unit(1), 5) == []
