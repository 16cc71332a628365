from __future__ import annotations

from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.numbering import Numbering
from streamway.lanes import EarlierCall
from streamway.v1 import common_pb2

EPOCH = 1 << 20 | 7


def started() -> Numbering:
    numbering = Numbering()
    numbering.started(EPOCH, "w", 12)
    return numbering


def events_of(numbering: Numbering) -> list[common_pb2.Event]:
    taken = numbering.take()
    events = [common_pb2.Event.FromString(raw) for _, raw in taken]
    assert [event.position for event in events] == [position for position, _ in taken]
    return events


def kinds(events: list[common_pb2.Event]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


def test_the_first_event_of_a_worker_is_started_at_position_2() -> None:
    (event,) = events_of(started())
    assert (event.position, event.epoch, event.started.worker, event.started.queued_ms) == (2, EPOCH, "w", 12)


def test_pieces_of_one_choice_are_merged_until_they_are_taken() -> None:
    numbering = started()
    numbering.take()
    for text in ("Hel", "lo", " world"):
        numbering.piece(0, text)
    assert numbering.pending_units == 3
    (event,) = events_of(numbering)
    assert (event.first_position, event.position, event.epoch) == (3, 5, EPOCH)
    assert (event.token.text, event.token.units, event.token.first_token_index) == ("Hello world", 3, 0)
    numbering.piece(0, "!")
    (event,) = events_of(numbering)
    assert (event.first_position, event.position) == (0, 6)
    assert (event.token.text, event.token.units, event.token.first_token_index) == ("!", 1, 3)
    assert events_of(numbering) == []


def test_pieces_of_another_choice_are_not_merged() -> None:
    numbering = started()
    numbering.take()
    for choice, text in ((0, "a"), (0, "b"), (1, "x"), (0, "c")):
        numbering.piece(choice, text)
    events = events_of(numbering)
    assert [(e.token.choice, e.token.text, e.position) for e in events] == [(0, "ab", 4), (1, "x", 5), (0, "c", 6)]
    assert [e.token.first_token_index for e in events] == [0, 0, 2]


def test_a_raw_delta_is_never_merged() -> None:
    numbering = started()
    numbering.take()
    numbering.piece(0, "a")
    numbering.piece(0, "", raw_delta=b'{"x":1}')
    numbering.piece(0, "b")
    events = events_of(numbering)
    assert [(e.token.text, e.token.raw_delta, e.token.units) for e in events] == [
        ("a", b"", 1),
        ("", b'{"x":1}', 1),
        ("b", b"", 1),
    ]
    assert [e.token.first_token_index for e in events] == [0, 1, 2]


def test_a_lone_finish_reason_rides_with_the_last_unflushed_piece_of_its_choice() -> None:
    numbering = started()
    numbering.take()
    for choice, text in ((0, "a"), (1, "x")):
        numbering.piece(choice, text)
    numbering.piece(0, "", finish_reason="length")
    numbering.piece(1, "", finish_reason="stop")
    numbering.finished(None)
    events = events_of(numbering)
    assert [e.token.choice_finished.finish_reason for e in events[:2]] == ["length", "stop"]
    assert kinds(events) == ["token", "token", "finished"]
    assert [e.position for e in events] == [3, 4, 5]
    assert events[-1].finished.finish_reason == "length"


def test_a_lone_finish_reason_has_a_position_of_its_own_when_its_piece_is_gone() -> None:
    numbering = started()
    numbering.piece(0, "a")
    numbering.take()
    numbering.piece(0, "", finish_reason="stop")
    (event,) = events_of(numbering)
    assert (event.position, event.token.text, event.token.units) == (4, "", 1)
    assert event.token.choice_finished.finish_reason == "stop"
    assert event.token.first_token_index == 1


def test_a_finish_reason_that_comes_with_text_ends_its_piece() -> None:
    numbering = started()
    numbering.take()
    numbering.piece(0, "a")
    numbering.piece(0, "b", finish_reason="stop")
    (event,) = events_of(numbering)
    assert (event.token.text, event.token.choice_finished.finish_reason) == ("ab", "stop")


def test_a_finish_reason_rides_on_a_raw_delta_too() -> None:
    numbering = started()
    numbering.take()
    numbering.piece(0, "", raw_delta=b"{}")
    numbering.piece(0, "", finish_reason="tool_calls")
    (event,) = events_of(numbering)
    assert (event.token.raw_delta, event.token.choice_finished.finish_reason) == (b"{}", "tool_calls")
    numbering.piece(0, "", raw_delta=b"{}", finish_reason="tool_calls")
    (event,) = events_of(numbering)
    assert event.token.choice_finished.finish_reason == "tool_calls"


def test_token_ids_are_kept_in_order_and_counted() -> None:
    numbering = started()
    numbering.take()
    numbering.piece(0, "ab", token_ids=(1, 2))
    numbering.piece(0, "c", token_ids=(3,))
    (event,) = events_of(numbering)
    assert list(event.token.token_ids) == [1, 2, 3]
    assert event.token.units == 2
    numbering.piece(0, "d")
    assert events_of(numbering)[0].token.first_token_index == 3


def test_an_error_says_up_to_where_there_were_events() -> None:
    numbering = started()
    numbering.piece(0, "a")
    numbering.failed(status_pb2.Status(code=1))
    events = events_of(numbering)
    assert kinds(events) == ["started", "token", "error"]
    assert (events[-1].position, events[-1].error.delivered_until) == (4, 3)


def test_an_error_before_the_engine_call_has_epoch_0_and_position_2() -> None:
    numbering = Numbering()
    numbering.failed(status_pb2.Status(code=1))
    (event,) = events_of(numbering)
    assert (event.position, event.epoch, event.error.delivered_until) == (2, 0, 1)


def test_usage_is_what_the_engine_said() -> None:
    numbering = started()
    numbering.finished(common_pb2.Usage(prompt_tokens=3, completion_tokens=0))
    assert events_of(numbering)[-1].finished.usage.prompt_tokens == 3
    numbering = started()
    numbering.finished(None)
    assert not events_of(numbering)[-1].finished.HasField("usage")


_PIECES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.text(min_size=1, max_size=3),
        st.sampled_from([b"", b"", b"{}"]),
        st.booleans(),
    ),
    max_size=40,
)


@given(_PIECES)
def test_ranges_tile_and_each_choice_has_its_text_however_it_is_flushed(
    pieces: list[tuple[int, str, bytes, bool]],
) -> None:
    numbering = started()
    events = []
    for choice, text, raw, flush in pieces:
        numbering.piece(choice, text, raw)
        if flush:
            events += events_of(numbering)
    numbering.finished(None)
    events += events_of(numbering)
    expected = 2
    for event in events:
        assert (event.first_position or event.position) == expected
        expected = event.position + 1
    assert expected == 4 + len(pieces)
    for choice in range(3):
        tokens = [e.token for e in events if e.HasField("token") and e.token.choice == choice]
        assert "".join(t.text for t in tokens) == "".join(text for c, text, _, _ in pieces if c == choice)
        assert [t.first_token_index for t in tokens] == [sum(t.units for t in tokens[:n]) for n in range(len(tokens))]


def test_calls_that_made_no_token_keep_their_positions_and_the_next_one_says_its_line() -> None:
    numbering = Numbering()
    numbering.retried([EarlierCall("a", 1048577), EarlierCall("b", 0)])
    numbering.started(3145729, "c", 5)
    first, second = events_of(numbering)
    assert (first.position, first.epoch, first.started.worker, first.started.line) == (2, 1048577, "a", "")
    assert (second.position, second.epoch, second.started.worker) == (3, 3145729, "c")
    assert second.started.line == "0:1,1048577:2,3145729:3"
