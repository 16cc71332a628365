"""What the router writes into channels itself."""

from __future__ import annotations

from services.router.core.events import accepted, entries_of, replay
from streamway.following.page import events_of
from streamway.journal import Kind
from streamway.v1 import cache_pb2, common_pb2

REQUEST = common_pb2.GenerationRequest(generation="g", model="m", session="s")


def test_an_accepted_generation_has_one_entry() -> None:
    event = accepted(
        REQUEST, route="home", cache="miss", worker="w", source="h:1", durability=common_pb2.DURABILITY_STRICT
    )
    (entry,) = entries_of([event])
    assert (str(entry.id), entry.first, entry.kind) == ("0-1", 1, Kind.ACCEPTED)
    (kept,) = events_of(entry)
    assert kept.accepted.durability == common_pb2.DURABILITY_STRICT
    assert kept.generation == ""
    assert event.generation == "g", "what is delivered is left alone"


def test_an_answer_from_the_cache_is_a_whole_channel_without_an_engine_call() -> None:
    answer = cache_pb2.CachedAnswer(finish_reason="stop", usage=common_pb2.Usage(completion_tokens=3))
    answer.events.add(token=common_pb2.Token(text="a", units=1))
    answer.events.add(token=common_pb2.Token(text="bc", units=2))
    told = replay(REQUEST, answer, "exact", common_pb2.DURABILITY_RELAXED)
    entries = entries_of(told)
    assert [(entry.kind, entry.epoch, entry.first, entry.last) for entry in entries] == [
        (Kind.ACCEPTED, 0, 1, 1),
        (Kind.TOKENS, 0, 2, 5),
        (Kind.END, 0, 6, 6),
    ]
    again = [event for entry in entries for event in events_of(entry)]
    assert [event.WhichOneof("event") for event in again] == [event.WhichOneof("event") for event in told]
    assert [(event.first_position, event.position) for event in again] == [(e.first_position, e.position) for e in told]
    assert again[-1].finished.usage.from_cache
    assert told[0].accepted.durability == common_pb2.DURABILITY_RELAXED
