"""Ranges of rows for many small matrices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.semantic.slabs import SLAB_ROWS, Range, Slabs

SLAB_BYTES = SLAB_ROWS * 4 * 4


def rows_of(taken: Range) -> set[tuple[int, int]]:
    return {(taken.slab, row) for row in range(taken.first, taken.first + taken.rows)}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10)), max_size=80))
def test_no_row_is_handed_out_twice_and_all_come_back(steps: list[tuple[bool, int]]) -> None:
    slabs, taken = Slabs(4), list[Range]()
    for takes, number in steps:
        if takes:
            new = slabs.take(2**number)
            assert (new.rows, new.first % new.rows) == (2**number, 0)
            assert slabs.matrix(new).shape == (2**number, 4)
            assert not any(rows_of(new) & rows_of(other) for other in taken)
            taken.append(new)
        elif taken:
            slabs.give(taken.pop(number % len(taken)))
    for each in taken:
        slabs.give(each)
    assert slabs.size_bytes <= SLAB_BYTES
    assert slabs.take(SLAB_ROWS).rows == SLAB_ROWS
    assert slabs.size_bytes == SLAB_BYTES


def test_halves_that_are_free_are_one_again() -> None:
    slabs = Slabs(4)
    halves = [slabs.take(SLAB_ROWS // 2) for _ in range(2)]
    for half in halves:
        slabs.give(half)
    assert (slabs.take(SLAB_ROWS), slabs.size_bytes) == (Range(0, 0, SLAB_ROWS), SLAB_BYTES)


def test_a_slab_that_is_free_is_let_go_when_another_one_is() -> None:
    slabs = Slabs(4)
    whole = [slabs.take(SLAB_ROWS) for _ in range(3)]
    for each in whole:
        slabs.give(each)
    assert slabs.size_bytes == SLAB_BYTES
