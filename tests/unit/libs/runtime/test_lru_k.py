"""What goes first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamway.runtime.lru_k import LruK


def _nothing(_: str) -> bool:
    return False


def _made(*uses: tuple[str, float], correlated_s: float = 3.0) -> LruK[str]:
    lru: LruK[str] = LruK(correlated_s, 1000.0)
    for key, at in uses:
        lru.used(key, at)
    return lru


def test_what_was_used_once_goes_before_what_was_used_twice_however_late() -> None:
    lru = _made(("twice", 0), ("twice", 10), ("once", 500))
    assert lru.victim(_nothing) == "once"


def test_among_those_used_once_the_longest_unused_goes() -> None:
    lru = _made(("a", 0), ("b", 1), ("a", 2))
    assert lru.once("a"), "two uses within three seconds are one"
    assert lru.victim(_nothing) == "b"


def test_among_the_others_the_oldest_last_but_one_use_decides_and_not_the_last() -> None:
    lru = _made(("a", 0), ("a", 100), ("b", 50), ("b", 60))
    assert lru.victim(_nothing) == "a"


def test_retries_and_parallel_tool_calls_count_as_one_use() -> None:
    lru = _made(*(("burst", at / 10) for at in range(50)), ("plain", 1))
    assert lru.once("burst"), "fifty uses, none more than three seconds behind the one before"
    lru.used("burst", 10.0)
    assert not lru.once("burst")
    assert lru.rank("burst").at == 4.9, "the end of the burst before"


def test_what_is_spared_never_goes_and_is_found_later() -> None:
    lru = _made(("a", 0), ("b", 1))
    assert lru.victim(lambda key: key == "a") == "b"
    assert lru.victim(lambda key: True) is None
    assert lru.victim(_nothing) == "a"


def test_what_was_given_up_is_remembered_for_a_while() -> None:
    lru = _made(("a", 0), ("b", 0), ("c", 0))
    lru.give_up("a", 10)
    lru.used("a", 20)
    assert not lru.once("a")
    lru.give_up("b", 20)
    lru.used("b", 2000)
    assert lru.once("b"), "too long ago"
    lru.forget("c")
    lru.used("c", 20)
    assert lru.once("c")


def test_what_is_remembered_is_bounded_by_what_is_kept() -> None:
    lru = _made(*((f"k{number}", float(number)) for number in range(10)))
    for number in range(200):
        lru.used(f"gone{number}", 20.0)
        lru.give_up(f"gone{number}", 20.0)
    assert lru.remembered == 20


def test_many_uses_of_few_things_take_no_memory() -> None:
    lru: LruK[str] = LruK(3.0, 1000.0)
    for number in range(10_000):
        lru.used(f"k{number % 5}", number * 10.0)
    assert len(lru._order) <= 74
    assert lru.victim(_nothing) == "k0"


@given(st.lists(st.tuples(st.sampled_from(["use", "give up", "forget"]), st.sampled_from("abcdef"), st.integers(0, 4))))
def test_the_victim_is_always_the_one_of_the_lowest_rank(steps: list[tuple[str, str, int]]) -> None:
    lru: LruK[str] = LruK(correlated_s=2.0, retained_s=20.0)
    now, kept = 0.0, set[str]()
    for what, key, later in steps:
        now += later + 0.5
        if what == "use":
            lru.used(key, now)
            kept.add(key)
        elif what == "give up":
            lru.give_up(key, now)
            kept.discard(key)
        else:
            lru.forget(key)
            kept.discard(key)
        for spared in (set[str](), kept & {"a", "b"}):
            left = kept - spared
            expected = min(left, key=lru.rank) if left else None
            assert lru.victim(spared.__contains__) == expected
