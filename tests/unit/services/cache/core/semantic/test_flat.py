"""Rows whose slots are used again, against a plain list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.core.semantic.flat import FlatIndex, scan, score
from services.cache.core.semantic.slabs import SLAB_ROWS, Slabs

DIMS = 4


def unit(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)
    return vector / np.linalg.norm(vector)


def filled(count: int) -> FlatIndex:
    index = FlatIndex(Slabs(DIMS))
    for seed in range(count):
        index.add(unit(seed))
    return index


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "compact"]), st.integers(0, 40)), max_size=60),
    st.integers(0, 99),
    st.integers(1, 7),
)
def test_it_finds_what_a_plain_list_finds(steps: list[tuple[str, int]], asked: int, most: int) -> None:
    slabs = Slabs(DIMS)
    index, other, slots = FlatIndex(slabs), FlatIndex(slabs), dict[int, int]()
    for what, seed in steps:
        # What others put into the same slab is never found.
        other.add(np.ones(DIMS, np.float32) * 9)
        if what == "add" and seed not in slots:
            slots[seed] = index.add(unit(seed))
        elif what == "remove" and seed in slots:
            index.remove(slots.pop(seed))
        elif what == "compact":
            moved = dict(index.compact(seed % 5))
            slots = {each: moved.get(slot, slot) for each, slot in slots.items()}
    question = unit(1000 + asked)
    wanted = sorted(((float(unit(seed) @ question), slot) for seed, slot in slots.items()), reverse=True)[:most]
    found = index.nearest(question, most)
    assert len(index) == len(slots)
    assert sorted(slots.values()) == index.live().tolist()
    assert [near for _, near in found] == pytest.approx([near for near, _ in wanted], abs=1e-6)
    assert {slot for slot, _ in found} == {slot for _, slot in wanted}
    given_slots = np.array([slot for _, slot in wanted][::-1], np.int64)
    assert score(index.blocks, question, given_slots, most).tolist() == [slot for slot, _ in found]


def test_a_freed_slot_is_taken_before_the_rows_grow() -> None:
    index = filled(8)
    slots = list(range(8))
    for turn in range(100):
        index.remove(slots[turn % 8])
        slots[turn % 8] = index.add(unit(turn))
    assert sum(len(block.rows) for block in index.blocks) == 8


def test_another_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="among those of 4"):
        FlatIndex(Slabs(DIMS)).add(np.zeros(5, np.float32))


def test_an_empty_index_finds_nothing() -> None:
    index = FlatIndex(Slabs(DIMS))
    assert index.nearest(unit(1), 5) == []
    index.remove(index.add(unit(1)))
    assert (index.nearest(unit(1), 5), index.blocks) == ([], ())


def test_a_search_reads_its_own_rows_and_no_others() -> None:
    slabs = Slabs(DIMS)
    indexes = [FlatIndex(slabs) for _ in range(20)]
    for seed in range(300):
        indexes[seed % 20].add(unit(seed))
    assert slabs.size_bytes == SLAB_ROWS * DIMS * 4
    for index in indexes:
        (mine,) = index.blocks
        assert len(mine.rows) == 16
        assert not any(np.shares_memory(mine.rows, other.blocks[0].rows) for other in indexes if other is not index)


def test_a_large_one_has_rows_of_its_own_and_grows_without_copying() -> None:
    index = filled(SLAB_ROWS)
    assert index.shared
    index.add(unit(1))
    assert not index.shared
    before = index.blocks
    for seed in range(3000):
        index.add(unit(seed))
    assert [len(block.rows) for block in index.blocks] == [1024, 1024, 2048]
    assert all(old.rows is new.rows for old, new in zip(before, index.blocks, strict=False))


def test_rows_go_when_their_vectors_have_gone() -> None:
    index = filled(5000)
    for slot in range(4999, 1500, -1):
        index.remove(slot)
    assert [len(block.rows) for block in index.blocks] == [1024, 1024, 2048]
    for slot in range(1500):
        if slot % 10:
            index.remove(slot)
    kept = [index.vector(slot).copy() for slot in index.live().tolist()]
    while index.sparse:
        index.compact(100)
    assert index.shared
    assert index.own_bytes == 0
    assert len(index.blocks[0].rows) == 512
    assert sorted(map(tuple, kept)) == sorted(tuple(index.vector(slot)) for slot in index.live().tolist())


def test_several_vectors_are_looked_for_in_one_pass() -> None:
    index = filled(3000)
    questions = np.stack([unit(7), unit(2999)])
    assert [found[0] for found in scan(index.blocks, questions, 3)] == [7, 2999]
