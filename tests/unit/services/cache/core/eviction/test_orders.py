"""What every order keeps to, and what makes each of them what it is."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.eviction import ORDERS, Eviction, Weighed
from services.cache.core.eviction.lru import Lru
from services.cache.core.eviction.lru2 import Lru2
from services.cache.core.eviction.s3fifo import S3Fifo
from services.cache.core.eviction.sieve import Sieve
from services.cache.core.eviction.sketch import Sketch
from services.cache.core.eviction.tinylfu import TinyLfu

ALL = [pytest.param(make, id=name) for name, make in ORDERS.items()]
ALL += [pytest.param(lambda make=make: Weighed(make()), id=f"{name} weighed") for name, make in ORDERS.items()]
STEPS = st.lists(
    st.tuples(st.sampled_from(["use", "use", "use", "remove"]), st.integers(0, 30), st.integers(1, 50)), max_size=300
)


def name(number: int) -> bytes:
    return number.to_bytes(4, "big")


def fill(order: Eviction, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        order.add(name(number), 10)


def drain(order: Eviction) -> list[int]:
    return [int.from_bytes(order.evict(), "big") for _ in range(len(order))]


@pytest.mark.parametrize("make", ALL)
@given(steps=STEPS, limit=st.integers(1, 200))
def test_bytes_stay_bounded_and_no_key_is_lost_or_given_twice(
    make: Callable[[], Eviction], steps: list[tuple[str, int, int]], limit: int
) -> None:
    order = make()
    held: dict[bytes, int] = {}
    for what, number, size in steps:
        key = name(number)
        if what == "remove":
            if key in held:
                order.remove(key)
                del held[key]
        elif key in held:
            order.hit(key)
        else:
            order.add(key, size, float(size % 7 + 1))
            held[key] = size
            while sum(held.values()) > limit:
                del held[order.evict()]
        assert len(order) == len(held)
        assert sum(held.values()) <= limit
    while held:
        del held[order.evict()]
    assert len(order) == 0


@pytest.mark.parametrize("make", ALL)
def test_a_step_costs_the_same_however_many_are_held(make: Callable[[], Eviction]) -> None:
    """Lines run for 2,000 entries that come and go."""

    def lines(held: int) -> int:
        order = make()
        fill(order, held)
        count = 0

        def trace(frame: object, event: str, _: object) -> object:
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            for number in range(held, held + 2_000):
                order.add(name(number), 10)
                order.evict()
        finally:
            sys.settrace(before)
        return count

    assert lines(100_000) <= 2 * lines(1_000)


def test_lru_gives_the_least_recently_used_one() -> None:
    order = Lru()
    fill(order, 4)
    order.hit(name(0))
    assert drain(order) == [1, 2, 3, 0]


def test_lru2_gives_those_used_once_first_and_then_by_the_use_before_the_last() -> None:
    order = Lru2()
    fill(order, 4)
    for number in (1, 3, 1, 3, 0):
        order.hit(name(number))
    # Used before the last time: 0 at its add, 1 and 3 at their second use.
    assert drain(order) == [2, 0, 1, 3]


def test_lru2_remembers_a_use_of_what_has_gone() -> None:
    order = Lru2()
    fill(order, 4)
    assert order.evict() == name(0)
    order.add(name(0), 10)
    assert drain(order) == [1, 2, 3, 0]


def test_s3fifo_lets_a_scan_pass_by_what_is_used() -> None:
    order = S3Fifo()
    fill(order, 10)
    for _ in range(2):
        for number in range(10):
            order.hit(name(number))
    fill(order, 1, 100)
    gone = set()
    for number in range(101, 400):
        order.add(name(number), 10)
        gone.add(int.from_bytes(order.evict(), "big"))
    assert not gone & set(range(9))


def test_s3fifo_takes_what_comes_back_for_good() -> None:
    order = S3Fifo()
    fill(order, 5)
    for number in range(5):
        order.hit(name(number))
        order.hit(name(number))
    fill(order, 2, 10)
    assert order.evict() == name(10)
    order.add(name(10), 10)
    assert drain(order)[0] == 11


def test_sieve_clears_marks_and_leaves_survivors_in_place() -> None:
    order = Sieve()
    fill(order, 5)
    for number in (0, 1, 3):
        order.hit(name(number))
    assert order.evict() == name(2)
    assert order.evict() == name(4)
    assert drain(order) == [0, 1, 3]


def test_tinylfu_turns_away_what_was_used_less_than_what_it_would_replace() -> None:
    order = TinyLfu()
    fill(order, 100)
    for number in range(90):
        order.hit(name(number))
    gone = set()
    for number in range(1_000, 1_300):
        order.add(name(number), 10)
        gone.add(int.from_bytes(order.evict(), "big"))
    # The sketch errs for a few; an LRU would lose all of them.
    assert len(gone & set(range(90))) <= 12


def test_a_sketch_counts_to_fifteen_halves_and_grows_without_forgetting() -> None:
    sketch = Sketch()
    for _ in range(40):
        sketch.count(b"a")
    assert sketch.estimate(b"a") == 15
    assert sketch.estimate(b"b") == 0
    sketch.fit(1_000)
    assert sketch.estimate(b"a") == 15
    for number in range(12_000):
        sketch.count(name(number % 4_000))
    assert sketch.estimate(b"a") < 15


def test_what_is_dear_for_its_bytes_goes_around_again_and_then_goes() -> None:
    order = Weighed(Lru())
    for number in range(6):
        order.add(name(number), 10, 1.0)
    order.add(name(9), 10, 100.0)
    first = [int.from_bytes(order.evict(), "big") for _ in range(6)]
    assert 9 not in first
    assert drain(order) == [9]
    fill(order, 20)
    order.add(name(50), 10, 30.0)
    for number in range(100, 300):
        order.add(name(number), 10, 1.0)
        if order.evict() == name(50):
            return
    pytest.fail("it never goes")
