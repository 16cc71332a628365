"""Whether an answer can honestly be continued."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.inference_adapter.core.continuation import (
    Complete,
    Continue,
    Fresh,
    Refuse,
    Why,
    judge,
    made_tokens,
)
from streamway.journal import ChoiceSoFar
from streamway.v1 import common_pb2


def asked(**body: Any) -> common_pb2.GenerationRequest:
    made = {"messages": [{"role": "user", "content": "hi"}], **body}
    return common_pb2.GenerationRequest(model="m", openai_body=json.dumps(made).encode())


def so_far(text: str = "some words", **fields: Any) -> ChoiceSoFar:
    return ChoiceSoFar(text=text, **{"units": 2, **fields})


def test_without_anything_delivered_a_call_starts_from_the_beginning_whatever_it_asks() -> None:
    hard = asked(n=4, response_format={"type": "json_object"}, logprobs=True)
    assert judge(hard, {}) == Fresh()
    assert judge(hard, {0: ChoiceSoFar()}) == Fresh()


def test_plain_text_is_continued() -> None:
    choice = so_far()
    assert judge(asked(), {0: choice}) == Continue(choice)
    assert judge(asked(n=1, stop=["\n\n"], tools=[{"type": "function"}], tool_choice="auto"), {0: choice}) == Continue(
        choice
    )
    assert judge(asked(response_format={"type": "text"}, presence_penalty=0), {0: choice}) == Continue(choice)


def test_an_engine_that_can_not_go_on_may_still_begin_and_complete() -> None:
    assert judge(asked(), {0: so_far()}, continues=False) == Refuse(Why.ENGINE)
    assert judge(asked(), {}, continues=False) == Fresh()
    assert isinstance(judge(asked(max_tokens=2), {0: so_far()}, continues=False), Complete)
    assert judge(asked(n=2), {0: so_far()}, continues=False) == Refuse(Why.SEVERAL_CHOICES), "the more telling reason"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"n": 2}, Why.SEVERAL_CHOICES),
        ({"best_of": 3}, Why.SEVERAL_CHOICES),
        ({"use_beam_search": True}, Why.SEVERAL_CHOICES),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, Why.STRUCTURED),
        ({"grammar": "root ::= x"}, Why.STRUCTURED),
        ({"guided_json": {}}, Why.STRUCTURED),
        ({"structured_outputs": {"regex": "a"}}, Why.STRUCTURED),
        ({"tools": [{}], "tool_choice": "required"}, Why.STRUCTURED),
        ({"logprobs": True}, Why.LOGPROBS),
        ({"top_logprobs": 3}, Why.LOGPROBS),
        ({"presence_penalty": 0.1}, Why.PENALTIES),
        ({"frequency_penalty": -1}, Why.PENALTIES),
        ({"stop": "sorry"}, Why.STOP_STRING),
        ({"stop": ["x", "ds."]}, Why.STOP_STRING),
    ],
)
def test_what_would_not_be_honest_is_refused(body: dict[str, Any], why: Why) -> None:
    assert judge(asked(**body), {0: so_far()}) == Refuse(why)


def test_a_tool_call_in_mid_air_is_refused() -> None:
    assert judge(asked(), {0: so_far(text="", plain=False)}) == Refuse(Why.NOT_PLAIN_TEXT)


def test_more_choices_than_were_asked_for_are_refused() -> None:
    assert judge(asked(), {0: so_far(), 1: so_far()}) == Refuse(Why.SEVERAL_CHOICES)


def test_typed_fields_count_as_the_body_does() -> None:
    typed = common_pb2.GenerationRequest(model="m")
    choice = so_far()
    assert judge(typed, {0: choice}) == Continue(choice)
    typed.sampling.presence_penalty = 0.5
    assert judge(typed, {0: choice}) == Refuse(Why.PENALTIES)
    typed.sampling.ClearField("presence_penalty")
    typed.limits.stop.append("so")
    assert judge(typed, {0: so_far(text="also")}) == Continue(so_far(text="also"))
    typed.limits.stop.append("lso much")
    assert judge(typed, {0: so_far(text="also")}) == Refuse(Why.STOP_STRING)
    typed.sampling.n = 3
    assert judge(typed, {0: so_far(text="also")}) == Refuse(Why.SEVERAL_CHOICES)


def test_a_whole_answer_needs_no_engine() -> None:
    assert judge(asked(), {0: so_far(finish_reason="stop", units=7)}) == Complete("stop", 7)
    both = {0: so_far(finish_reason="stop"), 1: so_far(finish_reason="length")}
    assert judge(asked(n=2), both) == Complete("stop", 4)
    assert judge(asked(), {0: so_far(text="", plain=False, finish_reason="tool_calls")}) == Complete("tool_calls", 2)
    # One of two is not the whole.
    assert judge(asked(n=2), {0: so_far(finish_reason="stop")}) == Refuse(Why.SEVERAL_CHOICES)


def test_an_answer_that_has_used_its_limit_up_has_ended() -> None:
    assert judge(asked(max_tokens=2), {0: so_far()}) == Complete("length", 2, unsaid=True)
    assert judge(asked(max_completion_tokens=2, max_tokens=9), {0: so_far()}) == Complete("length", 2, unsaid=True)
    assert isinstance(judge(asked(max_tokens=3), {0: so_far()}), Continue)


def test_the_engines_ids_count_tokens_better_than_pieces() -> None:
    assert made_tokens(so_far(units=2, token_ids=[1, 2, 3, 4])) == 4
    assert made_tokens(so_far(units=5, token_ids=[1, 2])) == 5


def test_a_body_that_no_engine_could_read_is_the_engines_to_refuse() -> None:
    assert judge(common_pb2.GenerationRequest(openai_body=b"{"), {}) == Fresh()
