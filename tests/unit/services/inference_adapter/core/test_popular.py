from __future__ import annotations

from services.inference_adapter.core.popular import WINDOW_S, Popular, hottest, windows


def test_what_was_asked_for_once_is_not_told() -> None:
    popular = Popular()
    popular.seen("t", "m", b"once")
    popular.seen("t", "m", b"twice")
    assert popular.take() == {}
    popular.seen("t", "m", b"twice")
    assert popular.take() == {("t", "m", b"twice"): 2}
    assert popular.take() == {}
    popular.seen("t", "m", b"twice")
    assert popular.take() == {("t", "m", b"twice"): 1}


def test_the_one_asked_for_longest_ago_makes_room() -> None:
    popular = Popular(most=2)
    for context in (b"a", b"b", b"a", b"c", b"b", b"a"):
        popular.seen("t", "m", context)
    # b was pushed out by c and a by b: both began anew.
    assert popular.take() == {}


def test_tenants_are_told_apart() -> None:
    popular = Popular()
    for tenant in ("one", "two", "two"):
        popular.seen(tenant, "m", b"x")
    assert popular.take() == {("two", "m", b"x"): 2}


def test_two_windows_count_together() -> None:
    assert windows(WINDOW_S * 5 + 1.0) == (5, 4)
    counts = [("t", {b"a": 2.0, b"b": 3.0}), ("t", {b"a": 2.0}), ("u", {b"a": 3.5})]
    assert hottest(counts, 2) == [("t", b"a"), ("u", b"a")]
