"""Partitions that are being filled."""

from __future__ import annotations

from services.cache.core.semantic.growth import Growth


def test_one_that_is_filled_is_waited_for_until_it_grows_slowly() -> None:
    growth = Growth()
    assert [growth.settled(b"p", count) for count in (1000, 2000, 3000, 3001, 3060, 3200)] == [
        *(False, False, False),
        *(True, True, False),
    ]


def test_one_that_never_stops_growing_is_not_waited_for_for_ever() -> None:
    growth = Growth()
    settled = [growth.settled(b"p", 1000 * 2**look) for look in range(62)]
    assert [look for look, is_settled in enumerate(settled) if is_settled] == [30, 61]


def test_those_that_have_gone_are_forgotten() -> None:
    growth = Growth()
    for each in (b"p", b"q"):
        growth.settled(each, 1000)
        assert growth.settled(each, 1000)
    assert growth.gone({b"p"}) == [b"q"]
    assert (growth.settled(b"p", 1000), growth.settled(b"q", 1000)) == (True, False)
