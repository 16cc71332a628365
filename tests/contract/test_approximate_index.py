"""What every index has to keep to that finds candidates without reading all vectors."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.core.semantic.kinds import Kind
from services.cache.interfaces import ApproximateIndex
from services.cache.io import indexes

DIMS = 32
COUNT = 2000
KINDS = pytest.mark.parametrize("kind", [Kind.HNSW, Kind.IVF_PQ])


def clustered(count: int, seed: int = 1) -> np.ndarray:
    """Vectors of unit length, some ten to a cluster, as questions are."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((max(1, count // 10), DIMS))
    vectors = centres[draw.integers(0, len(centres), count)] + 0.4 * draw.standard_normal((count, DIMS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


ROWS = clustered(COUNT + 500)


def built(kind: Kind, count: int = COUNT, rows: np.ndarray = ROWS) -> ApproximateIndex:
    index = indexes.build(kind, np.arange(count), lambda slots: rows[slots], lambda: False)
    assert index is not None
    return index


def found_share(index: ApproximateIndex, rows: np.ndarray, alive: list[int], questions: np.ndarray) -> float:
    """Share of the five nearest that are among the candidates."""
    living = np.array(alive)
    hits = 0
    for question, candidates in zip(questions, index.nearest(questions, 5), strict=True):
        best = living[np.argsort(-(rows[living] @ question))[:5]]
        hits += len(set(best.tolist()) & set(candidates.tolist()))
    return hits / (5 * len(questions))


@KINDS
def test_the_nearest_are_among_the_candidates(kind: Kind) -> None:
    index = built(kind)
    assert index.kind is kind
    assert found_share(index, ROWS, list(range(COUNT)), clustered(100, seed=2)) > 0.95
    assert not index.worn


@KINDS
def test_what_is_removed_is_never_given_and_the_others_still_are(kind: Kind) -> None:
    index = built(kind)
    gone = set(random.Random(1).sample(range(COUNT), 400))
    for slot in gone:
        index.remove(slot)
        index.remove(slot)
    index.remove(COUNT + 5)
    questions = ROWS[sorted(gone)[:100]]
    assert not any(gone & set(candidates.tolist()) for candidates in index.nearest(questions, 5))
    assert found_share(index, ROWS, sorted(set(range(COUNT)) - gone), questions) > 0.95


@KINDS
def test_what_lies_behind_a_crowd_of_removed_ones_is_found(kind: Kind) -> None:
    rows = ROWS.copy()
    rows[:400] = rows[0] + 0.4 * ROWS[:400]
    rows[:400] /= np.linalg.norm(rows[:400], axis=1, keepdims=True)
    index = built(kind, rows=rows)
    for slot in range(395):
        index.remove(slot)
    (candidates,) = index.nearest(rows[:1], 5)
    assert {395, 396, 397, 398, 399} <= set(candidates.tolist())


@KINDS
def test_a_row_that_comes_again_is_found_as_it_is_now(kind: Kind) -> None:
    index = built(kind)
    index.add(np.array([7, COUNT]), np.stack([-ROWS[7], ROWS[COUNT]]))
    near, far, new = index.nearest(np.stack([-ROWS[7], ROWS[7], ROWS[COUNT]]), 5)
    assert 7 in near.tolist()
    assert 7 not in far.tolist()[:5]
    assert COUNT in new.tolist()
    assert len(set(near.tolist())) == len(near)


@KINDS
def test_a_quarter_of_tombstones_is_worn(kind: Kind) -> None:
    index = built(kind)
    for slot in range(COUNT // 4):
        index.remove(slot)
    assert not index.worn
    index.remove(COUNT // 4)
    assert index.worn


def test_lists_of_an_ivf_that_have_become_unequal_are_worn() -> None:
    index = built(Kind.IVF_PQ)
    more = np.repeat(ROWS[:1], 900, axis=0)
    index.add(np.arange(COUNT, COUNT + 900), more)
    assert index.worn


@KINDS
def test_it_says_about_what_it_takes(kind: Kind) -> None:
    index = built(kind)
    real = len(faiss.serialize_index(index.faiss))  # type: ignore[attr-defined]
    assert 0.8 * real < index.size_bytes < 1.6 * real


@KINDS
def test_building_ends_when_it_is_stopped(kind: Kind) -> None:
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    assert indexes.build(kind, np.arange(COUNT), lambda slots: ROWS[slots], stopped) is None


def test_the_flat_kind_is_not_built() -> None:
    with pytest.raises(ValueError, match="flat is not built"):
        built(Kind.FLAT)


@KINDS
def test_one_core_is_used_in_whatever_thread(kind: Kind) -> None:
    seen = list[int]()

    def run(work: Callable[[], object]) -> None:
        work()
        seen.append(faiss.omp_get_max_threads())

    index = built(kind, 300)
    for work in (
        lambda: index.nearest(ROWS[:1], 5),
        lambda: index.add(np.array([0]), ROWS[:1]),
        lambda: built(kind, 300),
    ):
        thread = threading.Thread(target=run, args=(work,))
        thread.start()
        thread.join()
    assert seen == [1, 1, 1]


@KINDS
@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "search"]), st.integers(0, 350)), max_size=60))
def test_only_what_is_there_is_given_and_what_is_there_is_found(kind: Kind, steps: list[tuple[str, int]]) -> None:
    index = built(kind, 300)
    alive = set(range(300))
    for what, slot in steps:
        if what == "add":
            index.add(np.array([slot]), ROWS[slot][None])
            alive.add(slot)
        elif what == "remove":
            index.remove(slot)
            alive.discard(slot)
        else:
            candidates = index.nearest(ROWS[slot][None], 5)[0].tolist()
            assert set(candidates) <= alive
            assert len(candidates) == len(set(candidates)) >= min(5, len(alive))
            assert slot not in alive or slot in candidates
