"""The block that says what the cache did."""

from __future__ import annotations

from streamway.cachestatus import Heard, hit_of, named, of_event, state_of
from streamway.v1 import cache_pb2, common_pb2

_ANSWER = cache_pb2.CachedAnswer(
    entry="e",
    similarity=0.98,
    age_s=7,
    saved_money=0.00000425,
    usage=common_pb2.Usage(prompt_tokens=5, completion_tokens=20),
)


def test_every_part_is_told_under_its_name() -> None:
    assert named("semantic", hit_of(_ANSWER)) == {
        "x-streamway-cache": "semantic",
        "x-streamway-cache-entry": "e",
        "x-streamway-cache-similarity": "0.9800",
        "x-streamway-cache-saved-tokens": "25",
        "x-streamway-cache-saved-money": "0.00000425",
        "age": "7",
    }
    assert of_event(common_pb2.Accepted(cache="semantic", cache_hit=hit_of(_ANSWER))) == {
        "entry": "e",
        "similarity": 0.98,
        "age_s": 7,
        "saved_tokens": 25,
        "saved_money": 0.00000425,
    }
    assert named("", None) == {}


def test_what_is_no_hit_has_a_state_alone() -> None:
    assert named(state_of(cache_pb2.CACHE_OUTCOME_MISS), None) == {"x-streamway-cache": "miss"}
    assert state_of(cache_pb2.CACHE_OUTCOME_BYPASS) == "off"


def test_a_hit_that_overtakes_the_worker_is_heard_and_what_comes_too_late_is_a_miss() -> None:
    accepted = common_pb2.Event(accepted=common_pb2.Accepted(cache="pending"))
    overtaken = Heard()
    overtaken.hear(
        [accepted, common_pb2.Event(started=common_pb2.Started(cache="semantic", cache_hit=hit_of(_ANSWER)))]
    )
    assert dict(overtaken.trailers)["x-streamway-cache-entry"] == "e"

    spoken = Heard()
    spoken.hear([accepted, common_pb2.Event(started=common_pb2.Started())])
    assert spoken.trailers == (("x-streamway-cache", "pending"),)
    spoken.hear([common_pb2.Event(token=common_pb2.Token(text="a"))])
    assert spoken.trailers == (("x-streamway-cache", "miss"),)
