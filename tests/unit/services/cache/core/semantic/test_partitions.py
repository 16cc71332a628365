"""Vectors by context."""

from __future__ import annotations

import numpy as np

from services.cache.core.semantic.partitions import Partitions


def along(axis: int) -> np.ndarray:
    vector = np.zeros(4, np.float32)
    vector[axis] = 1
    return vector


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
    assert (len(partitions), partitions.partitions) == (0, 0)
