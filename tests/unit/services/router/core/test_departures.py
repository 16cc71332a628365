"""Which workers are gone."""

from __future__ import annotations

from services.router.core.departures import READERS_FIRST_S, Departures


def test_a_lease_that_ended_while_the_store_answered_is_the_end_of_its_worker() -> None:
    departures = Departures(3.0)
    departures.looked({"a": True, "b": True}, {}, 100.0)
    departures.looked({"a": True, "b": False}, {}, 104.0)
    assert departures.gone(104.0) == ["b"]


def test_at_the_start_and_after_an_outage_a_full_lease_must_pass() -> None:
    departures = Departures(3.0)
    assert departures.gone(0.0) == []
    departures.looked({"a": False}, {}, 100.0)
    assert departures.gone(102.9) == []
    assert departures.gone(103.0) == ["a"]
    departures.unreadable()
    assert departures.gone(110.0) == []
    assert not departures.steady(110.0)
    departures.looked({"a": False, "b": False}, {}, 120.0)
    assert departures.gone(122.0) == []
    departures.looked({"a": False, "b": True}, {}, 124.0)
    assert departures.gone(124.0) == ["a"]


def test_a_silent_worker_is_gone_until_it_renews_its_lease() -> None:
    departures = Departures(3.0)
    departures.looked({"a": True}, {"a": 5.0}, 100.0)
    departures.silent("a", 5.0)
    assert departures.is_silent("a")
    assert departures.gone(100.0) == ["a"], "its lease need not end first"
    departures.looked({"a": True}, {"a": 5.0}, 100.5)
    assert departures.gone(100.5) == ["a"]
    departures.looked({"a": True}, {"a": 6.0}, 101.0)
    assert not departures.is_silent("a")
    assert departures.gone(101.0) == []


def test_a_silent_worker_stays_gone_when_its_lease_ends_too() -> None:
    departures = Departures(3.0)
    departures.looked({"a": True}, {"a": 5.0}, 100.0)
    departures.silent("a", 5.0)
    departures.looked({"a": False}, {}, 104.0)
    assert departures.gone(104.0) == ["a"]


def test_nothing_is_taken_while_the_store_is_away() -> None:
    departures = Departures(3.0)
    departures.looked({"a": True}, {"a": 5.0}, 100.0)
    departures.silent("a", 5.0)
    departures.unreadable()
    assert departures.gone(200.0) == []


def test_after_an_outage_readers_that_are_ahead_of_the_store_come_first() -> None:
    departures = Departures(3.0)
    departures.looked({"a": True}, {"a": 5.0}, 100.0)
    departures.silent("a", 5.0)
    departures.unreadable()
    departures.looked({"a": True}, {"a": 5.0}, 110.0)
    assert departures.gone(110.0) == []
    assert departures.gone(110.0 + READERS_FIRST_S) == ["a"]
