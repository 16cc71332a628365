"""The Responses API without a network: what is taken, and how events are numbered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.edge.core import responses_request
from services.edge.core.responses_events import ResponseEvents
from services.edge.core.responses_request import Echo, Message
from services.edge.core.responses_state import ResponseState, decode_outcome, encode_outcome, generation_of
from streamway.errors import (
    Cancelled,
    EngineFailed,
    GenerationNotFound,
    InvalidArgument,
    StreamwayError,
    TooLarge,
    to_status,
)
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2

EPOCH = 1 << 20 | 77
GENERATION = new_generation_id()


def accepted(**fields: Any) -> common_pb2.Event:
    said = common_pb2.Accepted(durability=common_pb2.DURABILITY_RELAXED, **fields)
    return common_pb2.Event(position=1, accepted=said)


def started(position: int = 2) -> common_pb2.Event:
    return common_pb2.Event(position=position, epoch=EPOCH, started=common_pb2.Started(worker="w"))


def token(position: int, text: str, first: int = 0) -> common_pb2.Event:
    return common_pb2.Event(position=position, first_position=first, epoch=EPOCH, token=common_pb2.Token(text=text))


def finished(position: int, reason: str = "stop") -> common_pb2.Event:
    usage = common_pb2.Usage(prompt_tokens=7, completion_tokens=4, cached_prompt_tokens=2)
    end = common_pb2.Finished(finish_reason=reason, usage=usage)
    return common_pb2.Event(position=position, epoch=EPOCH, finished=end)


def failed(error: StreamwayError, position: int = 0) -> common_pb2.Event:
    return common_pb2.Event(position=position, error=common_pb2.Error(status=to_status(error)))


WHOLE = [accepted(), started(), token(3, "one "), token(5, "two %d ", first=4), token(6, "three"), finished(7)]


def state(**echo: Any) -> ResponseState:
    return ResponseState(GENERATION, Echo(model="m", **echo))


def stream(events: list[common_pb2.Event], after: int = -1) -> list[dict[str, Any]]:
    encoder = ResponseEvents(state(), after)
    return sent(b"".join(encoder.event(event, str(event.WhichOneof("event"))) for event in events))


def sent(data: bytes) -> list[dict[str, Any]]:
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        name, _, line = block.partition("\n")
        event = json.loads(line.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def kinds(events: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(event["sequence_number"], event["type"].removeprefix("response.")) for event in events]


def test_numbers_come_from_positions_and_grow() -> None:
    events = stream(WHOLE)
    assert kinds(events) == [
        (0, "created"),
        (1, "in_progress"),
        (2, "output_item.added"),
        (3, "content_part.added"),
        (5, "output_text.delta"),
        (7, "output_text.delta"),
        (8, "output_text.delta"),
        (9, "output_text.done"),
        (10, "content_part.done"),
        (11, "output_item.done"),
        (12, "completed"),
    ]
    assert "".join(event.get("delta", "") for event in events) == "one two %d three"
    assert events[0]["response"]["status"] == "queued"
    assert events[1]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == events[1]["response"]["output"] == []
    end = events[-1]["response"]
    assert end["status"] == "completed"
    assert end["output"][0]["content"][0]["text"] == "one two %d three"
    assert end["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 11,
    }


@pytest.mark.parametrize("after", range(-1, 14))
def test_a_resumed_stream_is_what_comes_after_a_number(after: int) -> None:
    assert stream(WHOLE, after) == [event for event in stream(WHOLE) if event["sequence_number"] > after]


def test_a_takeover_takes_a_number_and_says_nothing() -> None:
    taken = common_pb2.Event(position=4, epoch=2 << 20, taken_over=common_pb2.TakenOver(worker="x"))
    events = stream([accepted(), started(), token(3, "a"), taken, token(5, "b"), finished(6)])
    assert [(event["sequence_number"], event["delta"]) for event in events if "delta" in event] == [(5, "a"), (7, "b")]


def test_an_answer_from_the_cache_has_no_start_and_all_events() -> None:
    events = stream([accepted(), token(2, "a"), finished(3)])
    assert [number for number, _ in kinds(events)] == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_an_empty_answer_has_its_item() -> None:
    events = stream([accepted(), started(), finished(3)])
    assert kinds(events)[2:] == [
        (2, "output_item.added"),
        (3, "content_part.added"),
        (5, "output_text.done"),
        (6, "content_part.done"),
        (7, "output_item.done"),
        (8, "completed"),
    ]


def test_an_answer_that_was_cut_is_incomplete() -> None:
    end = stream([accepted(), started(), token(3, "a"), finished(4, "length")])[-1]
    assert end["type"] == "response.incomplete"
    assert end["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert end["response"]["output"][0]["status"] == "incomplete"


def test_a_failure_says_why() -> None:
    events = stream([accepted(), started(), failed(EngineFailed("w", "it broke"), 3)])
    assert kinds(events) == [(0, "created"), (1, "in_progress"), (5, "failed")]
    error = events[-1]["response"]["error"]
    assert (error["code"], error["type"]) == ("server_error", "engine_failed")
    assert "it broke" in error["message"]


def test_a_cancelled_response_ends_incomplete_with_its_text() -> None:
    end = stream([accepted(), started(), token(3, "a"), failed(Cancelled(), 4)])[-1]
    assert (end["type"], end["response"]["status"]) == ("response.incomplete", "cancelled")
    assert end["response"]["output"][0]["content"][0]["text"] == "a"


def test_an_error_of_the_reading_alone_keeps_the_number_to_go_on_from() -> None:
    events = stream([accepted(), started(), token(3, "a"), failed(EngineFailed("w", "x"))])
    assert kinds(events)[-1] == (5, "error")


def test_without_a_store_such_an_error_is_the_end() -> None:
    off = accepted()
    off.accepted.durability = common_pb2.DURABILITY_OFF
    assert kinds(stream([off, started(), token(3, "a"), failed(EngineFailed("w", "x"))]))[-1] == (9, "failed")


@pytest.mark.parametrize("events", [WHOLE, [accepted(), started(), failed(EngineFailed("w", "x"), 3)]])
def test_what_is_kept_of_a_response_gives_the_same_object_and_end(events: list[common_pb2.Event]) -> None:
    encoder = ResponseEvents(state())
    for event in events:
        encoder.event(event, str(event.WhichOneof("event")))
    kept = decode_outcome(encode_outcome(encoder.state.outcome))
    again = ResponseState.ended_as(GENERATION, encoder.state.echo, kept)
    assert again.object() == encoder.state.object()
    told = sent(ResponseEvents(again).whole())
    assert told[-1] == stream(events)[-1]
    assert "".join(event.get("delta", "") for event in told) == again.text
    numbers = [number for number, _ in kinds(told)]
    assert numbers == sorted(set(numbers))


def test_attached_to_an_earlier_generation_it_is_that_one() -> None:
    earlier = new_generation_id()
    assert stream([accepted(attached_to=earlier)])[0]["response"]["id"] == f"resp_{earlier}"


def test_an_id_is_ours_or_unknown() -> None:
    assert generation_of(f"resp_{GENERATION}") == GENERATION
    for id_ in ("", "resp_", GENERATION, f"resp_{GENERATION}x", "resp_../../x"):
        with pytest.raises(GenerationNotFound):
            generation_of(id_)


def parse(**fields: Any) -> responses_request.ResponsesBody:
    return responses_request.parse(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def test_input_is_text_or_messages_of_text() -> None:
    parts = [{"type": "output_text", "text": "a", "annotations": []}, {"type": "output_text", "text": "b"}]
    body = parse(input=[{"role": "user", "content": "x"}, {"type": "message", "role": "assistant", "content": parts}])
    assert responses_request.turns(body) == [Message("user", "x"), Message("assistant", "ab")]
    assert responses_request.turns(parse()) == [Message("user", "hi")]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"text": {"format": {"type": "json_schema"}}}, "text"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": 3}, "input"),
        ({"temprature": 1}, "temprature"),
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"background": True, "store": False}, "background"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        parse(**fields)
    assert (refusal.value.param or "").startswith(field)


def test_items_that_are_no_text_are_refused_by_place() -> None:
    for input_, field in [
        ([{"type": "item_reference", "id": "x"}], "input[0].type"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0].type"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
    ]:
        with pytest.raises(InvalidArgument) as refusal:
            responses_request.turns(parse(input=input_))
        assert refusal.value.param == field


def test_harmless_values_of_what_is_not_served_pass() -> None:
    parse(
        tools=[],
        tool_choice="auto",
        include=[],
        truncation="disabled",
        text={"format": {"type": "text"}},
        reasoning=None,
    )


def test_the_request_has_the_instructions_first_and_fits_the_mesh() -> None:
    body = parse(instructions="Be brief.", temperature=0.5, max_output_tokens=9, background=True)
    request = responses_request.to_request(body, responses_request.turns(body), 1 << 20)
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]
    assert request.limits.max_tokens == 9
    assert request.on_disconnect == common_pb2.ON_DISCONNECT_CONTINUE
    with pytest.raises(TooLarge):
        responses_request.to_request(body, [Message("user", "x" * 70_000)], 64 * 1024)
