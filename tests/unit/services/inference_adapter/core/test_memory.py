from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.inference_adapter.core.memory import Gone, Memory
from services.inference_adapter.core.shares import BoundOf
from services.inference_adapter.core.transcript import Transcript
from streamway.v1 import common_pb2
from tests.support.serialised import serialised


def memory(bound_of: BoundOf = lambda _: None, **bounds: int) -> Memory:
    values = {"most_bytes": 1 << 20, "most_ended": 100, "generation_bytes": 1 << 20, "most_gone": 100, **bounds}
    return Memory(ended_ttl_s=60.0, bound_of=bound_of, **values)


def token(position: int, first: int = 0, text: str = "x") -> common_pb2.Event:
    return common_pb2.Event(position=position, first_position=first, token=common_pb2.Token(text=text, units=1))


def filled(kept: Memory, id_: str, *events: common_pb2.Event, now: float = 0.0, end: bool = True) -> Transcript:
    transcript = kept.open(id_, "acme", now)
    kept.keep(transcript, serialised(*events), now)
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


def test_a_lower_bound_forgets_the_oldest_ended_ones_at_once_and_running_ones_when_they_grow() -> None:
    kept = memory()
    for name in "abc":
        filled(kept, name, token(2, text="x" * 1000))
    running = filled(kept, "r", token(2, text="x" * 1000), token(3), end=False)
    kept.bound(2 * running.bytes)
    assert [kept.find(name) is Gone.EXPIRED for name in "abc"] == [True, True, False]
    kept.bound(500)
    assert kept.find("c") is Gone.EXPIRED
    assert running.dropped_until == 0
    kept.keep(running, serialised(token(4)), 0)
    assert running.dropped_until >= 2
    assert kept.bytes <= 500


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
        kept.keep(transcript, serialised(token(position, text="x" * 100)), 0.0)
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
    kept.keep(transcript, serialised(token(3, text="x" * 5000)), 0.0)
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


def text_of(size: int, position: int = 2) -> common_pb2.Event:
    return token(position, text="x" * size)


def test_only_a_tenant_over_its_bound_is_trimmed_its_ended_ones_first() -> None:
    kept = memory({"loud": 3000}.get)
    quiet = kept.open("quiet", "quiet", 0)
    kept.keep(quiet, serialised(text_of(5000)), 0.0)
    kept.end(quiet, 0)
    running = kept.open("running", "loud", 1)
    kept.keep(running, serialised(*[text_of(400, position) for position in range(2, 5)]), 1.0)
    ended = [kept.open(name, "loud", 2) for name in ("first", "second")]
    for transcript in ended:
        kept.keep(transcript, serialised(text_of(400)), 0.0)
        kept.end(transcript, 2)
    last = kept.open("last", "loud", 3)
    kept.keep(last, serialised(text_of(800)), 0.0)
    # The oldest that has ended makes room; what runs, and the other tenant's, older than all, stay whole.
    assert kept.find("first") is Gone.EXPIRED
    assert kept.find("second") is ended[1]
    assert (running.base, kept.find("quiet")) == (0, quiet)
    assert 0 < kept.trimmed_bytes < 1000
    assert not kept.over("loud")
    # Then the oldest events of the one with most.
    kept.keep(last, serialised(text_of(900, 3)), 0.0)
    assert kept.find("second") is Gone.EXPIRED
    kept.keep(last, serialised(text_of(900, 4)), 0.0)
    assert (last.base > 0, last.position) == (True, 4)
    assert kept.bytes == quiet.bytes + running.bytes + last.bytes
    assert not kept.over("loud")


def test_requests_that_are_here_count_until_they_end_and_are_never_dropped() -> None:
    kept = memory({"loud": 1000}.get)
    first = kept.open("first", "loud", 0, request_bytes=700)
    assert not kept.over("loud")
    kept.open("second", "loud", 0, request_bytes=400)
    assert kept.over("loud")
    assert not kept.over("quiet")
    kept.end(first, 1)
    assert not kept.over("loud")
    kept.forget(first, Gone.MOVED)
    assert not kept.over("loud")


def test_a_bound_that_is_too_small_for_anything_keeps_the_newest_events() -> None:
    kept = memory({"loud": 1}.get)
    transcript = filled(kept, "mine", end=False)
    loud = kept.open("a", "loud", 0)
    kept.keep(loud, serialised(*[text_of(50, position) for position in range(2, 9)]), 0.0)
    assert (len(loud.events), loud.position) == (1, 8)
    kept.end(loud, 0)
    kept.keep(loud, serialised(text_of(50, 9)), 0.0)
    assert loud.position == 9, "it is read now"
    assert transcript.base == 0


def test_what_tenants_have_is_forgotten_with_their_last_transcript_and_bounds_may_change() -> None:
    bounds: dict[str, int] = {}
    kept = memory(bounds.get)
    for number in range(50):
        filled(kept, f"g{number}", text_of(100), now=float(number))
    assert len(kept._shares) == 1
    bounds["acme"] = 1000
    filled(kept, "new", text_of(100), now=50)
    assert kept.bytes <= 1000
    kept.sweep(1e6)
    assert (len(kept._shares), kept.bytes, len(kept)) == (0, 0, 0)


@example(
    steps=[("c", "open", 0), ("f", "open", 0), ("c", "grow", 0), ("c", "grow", 307), ("f", "grow", 400)],
)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["end", "forget", "grow", "open"]), st.integers(0, 400))
    )
)
def test_whatever_happens_shares_and_bytes_are_the_sums_of_what_is_kept(steps: list[tuple[str, str, int]]) -> None:
    kept = memory({"t0": 900, "t1": 500}.get, most_bytes=2500, generation_bytes=1000, most_ended=3)
    position = 1
    for name, what, size in steps:
        found = kept.find(name)
        if what == "open" and not isinstance(found, Transcript):
            kept.open(name, f"t{ord(name) % 3}", 0, request_bytes=size)
        elif not isinstance(found, Transcript):
            continue
        elif what == "end" and not found.ended:
            kept.end(found, 0)
        elif what == "forget":
            kept.forget(found, Gone.MOVED)
        elif what == "grow" and not found.ended:
            position += 1
            kept.keep(found, serialised(text_of(size, position)), 0.0)
        transcripts = list(kept._transcripts.values())
        assert kept.bytes == sum(each.bytes for each in transcripts)
        assert kept._shares._shares.keys() == {each.tenant for each in transcripts}
        for tenant, share in kept._shares._shares.items():
            mine = [each for each in transcripts if each.tenant == tenant]
            assert share.bytes == sum(each.bytes + each.request_bytes for each in mine)
            assert set(share.transcripts.values()) == set(mine)
            assert set(share.ended.values()) == {each for each in mine if each.ended}
            # What is left is what may not be dropped: one event each, and requests; or nothing is over.
            assert share.bytes <= share.bound or all(len(each.events) <= 1 for each in mine)
