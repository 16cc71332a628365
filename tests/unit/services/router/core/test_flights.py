"""Who may read along with whom, and what a cancel comes to."""

from __future__ import annotations

from typing import Any

import pytest

from services.router.core.body import look
from services.router.core.flights import Flight, Flights, Leaving, flight_key, terms_of
from streamway.v1 import common_pb2

RELAXED, STRICT, OFF = common_pb2.DURABILITY_RELAXED, common_pb2.DURABILITY_STRICT, common_pb2.DURABILITY_OFF
CONTINUE = common_pb2.ON_DISCONNECT_CONTINUE


def _ask(generation: str = "g", text: str = "hello", temperature: float | None = 0, **fields: Any) -> Any:
    values = {"tenant": "acme", "model": "m", "durability": RELAXED, **fields}
    made = common_pb2.GenerationRequest(generation=generation, **values)
    made.messages.add(role="user", content=text)
    if temperature is not None:
        made.sampling.temperature = temperature
    return made


def _key(request: common_pb2.GenerationRequest) -> bytes | None:
    return flight_key(request, look(request.openai_body, 1000), 1000)


def _flying(**fields: Any) -> Flights:
    flights, leader = Flights(10, 2), _ask("leader", **fields)
    key = _key(leader)
    assert key is not None
    assert flights.begin(key, leader, "w", "x:1")
    return flights


def _joins(flights: Flights, request: common_pb2.GenerationRequest, failed: str = "") -> bool:
    key = _key(request)
    flight = flights.find(key, request, failed) if key is not None else None
    if flight is not None:
        flights.join(flight, request.generation)
    return flight is not None


def _leaves(flights: Flights, generation: str, tenant: str | None) -> tuple[Leaving, str]:
    leaving, flight = flights.leave(generation, tenant)
    return leaving, flight.leader if flight is not None else ""


def test_h1_only_the_same_request_of_the_same_tenant_for_the_same_model_joins() -> None:
    flights = _flying()
    assert _joins(flights, _ask("a"))
    for other in (_ask("b", tenant="bolt"), _ask("b", model="n"), _ask("b", "hallo"), _ask("b", "x")):
        assert not _joins(flights, other)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": None},
        {"temperature": 0.7},
        {"durability": OFF},
        {"idempotency_key": "k"},
        {"cache": common_pb2.CACHE_POLICY_OFF},
    ],
)
def test_what_is_drawn_by_chance_undurable_keyed_or_uncached_flies_alone(fields: dict[str, Any]) -> None:
    assert _key(_ask(**fields)) is None


def test_chance_may_be_allowed_and_a_body_with_tools_never_joins() -> None:
    assert _key(_ask(temperature=0.7, cache=common_pb2.CACHE_POLICY_EXACT)) is not None
    body = b'{"model":"m","messages":[],"temperature":0,"tools":[{}]}'
    assert _key(_ask(openai_body=body)) is None


@pytest.mark.parametrize(
    ("leader", "follower", "may"),
    [
        ({}, {"deadline_unix_ms": 5000}, True),
        ({"deadline_unix_ms": 5000}, {}, False),
        ({"deadline_unix_ms": 5000}, {"deadline_unix_ms": 6000}, True),
        ({"deadline_unix_ms": 5000}, {"deadline_unix_ms": 6001}, False),
        ({"priority": 1}, {"priority": 1}, True),
        ({"priority": 0}, {"priority": 1}, False),
        ({"durability": RELAXED}, {"durability": STRICT}, False),
        ({}, {"on_disconnect": CONTINUE}, False),
        ({"on_disconnect": CONTINUE}, {"on_disconnect": CONTINUE}, True),
    ],
)
def test_a_follower_is_served_at_least_as_well_as_it_asked(leader: Any, follower: Any, may: bool) -> None:
    assert _joins(_flying(**leader), _ask("a", **follower)) is may


def test_the_engine_is_stopped_by_the_last_cancel_only() -> None:
    flights = _flying()
    assert _joins(flights, _ask("a"))
    assert _leaves(flights, "leader", "acme") == (Leaving.STAYS, "leader")
    assert _leaves(flights, "leader", "acme") == (Leaving.STAYS, "leader"), "twice is once"
    assert _leaves(flights, "a", "bolt") == (Leaving.UNKNOWN, ""), "another tenant cancels nothing"
    assert _joins(flights, _ask("b")), "a cancelled leader is joined like any other"
    assert _leaves(flights, "a", None) == (Leaving.STAYS, "leader")
    assert _leaves(flights, "b", "acme") == (Leaving.LAST, "leader")
    assert not _joins(flights, _ask("c")), "it is being aborted"
    assert _leaves(flights, "other", None) == (Leaving.UNKNOWN, "")


def test_after_the_end_nothing_is_left_and_nobody_joins() -> None:
    flights = _flying()
    assert _joins(flights, _ask("a"))
    flights.end("a")
    assert (len(flights), flights.followers) == (1, 1), "a follower's end is not the flight's"
    flights.end("leader")
    flights.end("leader")
    assert (len(flights), flights.followers, flights._by_id, flights._by_key, list(flights)) == (0, 0, {}, {}, [])
    assert not _joins(flights, _ask("b"))


def test_there_are_bounds_and_a_failed_leader_is_not_joined_again() -> None:
    flights = _flying()
    assert not _joins(flights, _ask("a"), failed="leader")
    assert _joins(flights, _ask("a"))
    assert _joins(flights, _ask("b"))
    assert not _joins(flights, _ask("c")), "two followers are the most"
    assert _joins(flights, _ask("b")), "asked again it is there already"
    full = Flights(1, 2)
    assert full.begin(b"1", _ask("one"), "w", "x")
    assert not full.begin(b"2", _ask("two"), "w", "x")


def test_a_newer_flight_of_a_key_is_not_closed_by_an_older_ones_end() -> None:
    flights = _flying()
    urgent = _ask("urgent", priority=5)
    assert not _joins(flights, urgent)
    key = _key(urgent)
    assert key is not None
    assert flights.begin(key, urgent, "w", "x")
    flights.end("leader")
    assert _joins(flights, _ask("a"))


def test_what_another_router_runs_is_followed_like_ours_and_its_leader_is_not_ours_to_hold() -> None:
    flights, leader = Flights(10, 2), _ask("leader", priority=3, deadline_unix_ms=5000)
    key = _key(_ask("a"))
    assert key is not None
    terms = terms_of(leader)
    assert not terms.messages
    assert terms.tenant == "acme"
    flight = flights.adopt(Flight(key, terms, "w", "x:1", ours=False))
    assert flight is not None
    assert flight.suits(leader)
    assert not flight.suits(_ask("late", deadline_unix_ms=9000))
    assert (len(flights), flights.followers, flights.knows(key)) == (1, 0, True)
    for follower in ("a", "b"):
        assert _joins(flights, _ask(follower, deadline_unix_ms=5000))
    assert not _joins(flights, _ask("c", deadline_unix_ms=5000)), "two followers are the most"
    assert _leaves(flights, "a", "acme") == (Leaving.STAYS, "leader")
    assert _leaves(flights, "leader", "acme") == (Leaving.UNKNOWN, "")
    assert _leaves(flights, "b", "acme") == (Leaving.LAST, "leader")
    assert not flights.knows(key)
    flights.end("leader")
    assert (len(flights), flights.followers, flights._by_id) == (0, 0, {})


def test_a_flight_that_everybody_here_has_left_is_joined_again_where_others_keep_it() -> None:
    flights = _flying()
    assert _leaves(flights, "leader", None) == (Leaving.LAST, "leader")
    key = _key(_ask("a"))
    assert key is not None
    again = flights.adopt(Flight(key, terms_of(_ask("leader")), "w", "x:1", ours=False))
    assert again is not None
    assert again.ours
    assert len(flights) == 1
    assert _joins(flights, _ask("a"))
    assert Flights(0, 2).adopt(again) is None


def test_only_who_takes_an_answer_by_likeness_follows_a_leader_that_may_get_one() -> None:
    alike, exact = common_pb2.CACHE_POLICY_SEMANTIC, common_pb2.CACHE_POLICY_EXACT
    for leads, follows, joined in ((alike, alike, True), (alike, exact, False), (exact, alike, True)):
        flights = Flights(10, 2)
        leader = _ask("leader", cache=leads)
        key = _key(leader)
        assert key is not None
        flights.adopt(Flight(key, terms_of(leader), "w", "x:1", ours=False))
        assert _joins(flights, _ask("a", cache=follows)) is joined


def test_what_must_not_be_read_or_stored_shares_no_call() -> None:
    for control in (
        common_pb2.CacheControl(no_cache=True),
        common_pb2.CacheControl(no_store=True),
        common_pb2.CacheControl(max_age_s=0),
    ):
        assert _key(_ask("a", cache_control=control)) is None
    assert _key(_ask("a", cache_control=common_pb2.CacheControl(max_age_s=5))) is not None
