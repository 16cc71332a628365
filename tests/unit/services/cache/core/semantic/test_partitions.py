"""Vectors by context."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from services.cache.core.semantic.partitions import Partitions


def along(axis: int) -> np.ndarray:
    vector = np.zeros(4, np.float32)
    vector[axis] = 1
    return vector


def unit(seed: int, dims: int = 4) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dims).astype(np.float32)
    return vector / np.linalg.norm(vector)


def test_h1_a_search_never_leaves_its_partition() -> None:
    partitions = Partitions()
    partitions.add(b"a", "mine", "hello?", along(0))
    partitions.add(b"b", "theirs", "hello?", along(0))
    assert [found.entry for found in partitions.nearest(b"a", along(0), 5)] == ["mine"]
    assert partitions.nearest(b"c", along(0), 5) == []


def test_the_nearest_come_first_with_their_questions() -> None:
    partitions = Partitions()
    partitions.add(b"a", "far", "what?", along(1))
    partitions.add(b"a", "near", "who?", along(0))
    found = partitions.nearest(b"a", along(0), 5)
    assert [(each.entry, each.question, each.similarity) for each in found] == [
        ("near", "who?", 1),
        ("far", "what?", 0),
    ]
    assert [each.entry for each in partitions.nearest(b"a", along(0), 1)] == ["near"]


def test_what_is_removed_is_gone_and_an_empty_partition_with_it() -> None:
    partitions = Partitions()
    partitions.add(b"a", "one", "what?", along(0))
    partitions.add(b"a", "two", "who?", along(1))
    partitions.remove("one")
    partitions.remove("one")
    partitions.remove("nobody")
    assert [found.entry for found in partitions.nearest(b"a", along(0), 5)] == ["two"]
    partitions.remove("two")
    assert (len(partitions), partitions.contexts, partitions.large) == (0, 0, {})


def test_entries_are_found_where_they_moved_to_when_rows_were_let_go() -> None:
    partitions = Partitions()
    for seed in range(600):
        partitions.add(b"a", f"e{seed}", f"q{seed}?", unit(seed))
    for seed in range(600):
        if seed % 25:
            partitions.remove(f"e{seed}")
    for seed in range(0, 600, 25):
        assert partitions.nearest(b"a", unit(seed), 1)[0][:2] == (f"e{seed}", f"q{seed}?")
    for seed in range(0, 600, 25):
        partitions.remove(f"e{seed}")
    assert partitions.contexts == 0


def test_thousands_of_small_contexts_take_little_more_than_their_vectors() -> None:
    partitions, contexts, dims = Partitions(), 2000, 384
    vectors = [unit(seed, dims) for seed in range(4)]
    tracemalloc.start()
    try:
        for context in range(contexts):
            for each, vector in enumerate(vectors):
                partitions.add(context.to_bytes(32, "big"), f"{context}/{each}", "what?", vector)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert partitions.size_bytes < 1.05 * contexts * 4 * 4 * dims
    assert (taken - partitions.size_bytes) / contexts < 3000


def test_a_view_of_rows_that_others_may_get_is_refused() -> None:
    partitions = Partitions()
    partitions.add(b"a", "one", "what?", along(0))
    partition = partitions.partition(b"a")
    assert partition is not None
    with pytest.raises(ValueError, match="shared rows"):
        partition.view()


def test_what_was_found_and_has_gone_is_not_given_and_what_took_its_slot_has_its_own_similarity() -> None:
    partitions = Partitions()
    for seed in range(1500):
        partitions.add(b"a", f"e{seed}", "what?", unit(seed))
    partition = partitions.partition(b"a")
    assert partition is not None
    (slots,) = partition.view().nearest(unit(3)[None], 2)
    assert slots[0] == 3
    partitions.remove("e3")
    assert "e3" not in [each.entry for each in partition.neighbours(slots, unit(3), 5)]
    partitions.add(b"a", "new", "what?", -unit(3))
    found = {each.entry: each.similarity for each in partition.neighbours(slots, unit(3), 5)}
    assert found["new"] == pytest.approx(-1)
