from __future__ import annotations

import pytest

from services.inference_adapter.core.memory import Gone, Memory, Transcript
from streamway.v1 import common_pb2


def memory(**bounds: int) -> Memory:
    values = {"most_bytes": 1 << 20, "most_ended": 100, "generation_bytes": 1 << 20, "most_gone": 100, **bounds}
    return Memory(ended_ttl_s=60.0, **values)


def token(position: int, first: int = 0, text: str = "x") -> common_pb2.Event:
    return common_pb2.Event(position=position, first_position=first, token=common_pb2.Token(text=text, units=1))


def filled(kept: Memory, id_: str, *events: common_pb2.Event, now: float = 0.0, end: bool = True) -> Transcript:
    transcript = kept.open(id_, "acme", now)
    kept.append(transcript, list(events))
    if end:
        kept.end(transcript, now)
    return transcript


def test_a_reader_gets_what_follows_its_position() -> None:
    transcript = filled(memory(), "a", token(2), token(5, 3), token(6))
    assert [transcript.index_after(position) for position in (0, 1, 2, 5, 6, 9)] == [0, 0, 1, 2, 3, 3]


def test_a_merged_event_that_a_position_lies_inside_of_is_sent_whole() -> None:
    transcript = filled(memory(), "a", token(2), token(5, 3), token(6))
    assert [transcript.index_after(position) for position in (3, 4)] == [1, 1]


def test_an_unknown_id_is_unknown() -> None:
    assert memory().find("a") is None


def test_a_generation_has_one_transcript() -> None:
    kept = memory()
    filled(kept, "a")
    with pytest.raises(ValueError, match="already"):
        kept.open("a", "acme", 0)


def test_an_ended_generation_is_forgotten_when_its_time_is_over_and_its_id_is_not() -> None:
    kept = memory()
    filled(kept, "a", token(2))
    filled(kept, "b", token(2), now=30)
    running = filled(kept, "c", token(2), end=False)
    kept.sweep(59.9)
    assert isinstance(kept.find("a"), Transcript)
    kept.sweep(60)
    assert kept.find("a") is Gone.EXPIRED
    assert isinstance(kept.find("b"), Transcript)
    kept.sweep(1000)
    assert kept.find("c") is running
    assert kept.bytes == running.bytes


def test_more_ended_generations_than_may_be_kept_push_out_the_oldest() -> None:
    kept = memory(most_ended=2)
    for id_ in "abc":
        filled(kept, id_, token(2))
    assert kept.find("a") is Gone.EXPIRED
    assert isinstance(kept.find("b"), Transcript)


def test_more_bytes_than_may_be_kept_push_out_ended_generations_first() -> None:
    kept = memory(most_bytes=4000)
    filled(kept, "a", token(2, text="x" * 1500))
    filled(kept, "b", token(2, text="x" * 1500))
    running = filled(kept, "c", token(2, text="x" * 1500), end=False)
    assert kept.find("a") is Gone.EXPIRED
    assert isinstance(kept.find("b"), Transcript)
    assert running.base == 0
    assert kept.bytes <= 4000


def test_a_long_answer_drops_its_oldest_events_and_a_reader_of_those_is_told() -> None:
    kept = memory(generation_bytes=2000)
    transcript = kept.open("a", "acme", 0)
    for position in range(2, 40):
        kept.append(transcript, [token(position, text="x" * 100)])
    assert transcript.bytes <= 2000
    assert transcript.base > 0
    assert transcript.end == 38
    oldest = transcript.positions[0]
    assert transcript.index_after(oldest) == transcript.base + 1
    assert transcript.index_after(oldest - 1) == transcript.base
    assert transcript.index_after(oldest - 2) < transcript.base
    assert kept.bytes == transcript.bytes


def test_the_newest_event_is_kept_however_large_it_is() -> None:
    kept = memory(generation_bytes=1000, most_bytes=1000)
    transcript = filled(kept, "a", token(2), end=False)
    kept.end(transcript, 0)
    kept.append(transcript, [token(3, text="x" * 5000)])
    assert list(transcript.positions) == [3]
    assert kept.find("a") is transcript
    assert kept.bytes == transcript.bytes


def test_ids_of_forgotten_generations_are_bounded() -> None:
    kept = memory(most_gone=2)
    for id_ in "abc":
        kept.mark_gone(id_, Gone.LOST)
    assert [kept.find(id_) for id_ in "abc"] == [None, Gone.LOST, Gone.LOST]


def test_a_buried_generation_is_found_once_by_its_tenant() -> None:
    kept = memory()
    kept.bury("a", None, 10)
    kept.bury("b", "acme", 10)
    assert kept.exhume("a", "acme")
    assert not kept.exhume("a", "acme")
    assert not kept.exhume("b", "other")
    assert kept.exhume("b", "acme")


def test_tombstones_are_forgotten_in_time() -> None:
    kept = memory()
    kept.bury("a", None, 10)
    kept.sweep(9)
    kept.bury("b", None, 19)
    kept.sweep(10)
    assert not kept.exhume("a", "acme")
    assert kept.exhume("b", "acme")


def test_tombstones_are_bounded() -> None:
    kept = memory(most_gone=2)
    for id_ in "abc":
        kept.bury(id_, None, 10)
    assert not kept.exhume("a", "acme")
    assert kept.exhume("c", "acme")
