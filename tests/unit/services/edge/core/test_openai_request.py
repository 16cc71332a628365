"""Chat completion bodies: what is checked, what is passed on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.edge.core import openai_request
from services.edge.core.openai_request import ENVELOPE_BYTES, parse, to_request
from streamway.errors import InvalidArgument, Malformed, TooLarge

LIMIT = 1024 * 1024


def body(**fields: Any) -> bytes:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps({name: value for name, value in chat.items() if value is not ...}).encode()


def test_unknown_fields_are_left_to_the_engine() -> None:
    raw = body(guided_json={"type": "object"}, chat_template_kwargs={"x": 1}, response_format={"type": "json_object"})
    assert to_request(parse(raw), raw, LIMIT).openai_body == raw


def test_null_is_the_same_as_absent() -> None:
    raw = body(temperature=None, stop=None, n=None, stream=None, tools=None, max_tokens=None, user=None)
    request = to_request(parse(raw), raw, LIMIT)
    assert not request.sampling.HasField("temperature")
    assert not request.limits.HasField("max_tokens")


def test_typed_messages_hold_the_text_of_their_parts() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "b"},
    ]
    raw = body(messages=[{"role": "user", "content": parts, "name": "me"}])
    [message] = to_request(parse(raw), raw, LIMIT).messages
    assert (message.role, message.content, message.name) == ("user", "ab", "me")


def test_an_assistants_tool_call_needs_no_content() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
    ]
    assert len(parse(body(messages=messages)).messages) == 2


def test_max_completion_tokens_wins_over_its_old_name() -> None:
    raw = body(max_tokens=5, max_completion_tokens=7)
    assert to_request(parse(raw), raw, LIMIT).limits.max_tokens == 7


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ...}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"messages": ...}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"function": {}}]}, "tools[0].type"),
        ({"user": "x" * 300}, "user"),
    ],
)
def test_the_field_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(body(**fields))
    assert caught.value.param == param


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b'{"x": ' + b"[" * 100_000, b'{"model": "\xc3"}', b"NaN"])
def test_what_is_not_json_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        parse(raw)


@pytest.mark.parametrize("raw", [b"[]", b"5", b'"x"', b"null"])
def test_what_is_not_an_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidArgument):
        parse(raw)


def test_a_large_conversation_travels_once_and_a_larger_one_not_at_all() -> None:
    raw = body(messages=[{"role": "user", "content": "x" * 700_000}])
    request = to_request(parse(raw), raw, LIMIT)
    assert not request.messages
    assert request.ByteSize() + ENVELOPE_BYTES <= LIMIT
    raw = body(messages=[{"role": "user", "content": "x" * LIMIT}])
    with pytest.raises(TooLarge, match="STREAMWAY_MAX_MESSAGE_BYTES"):
        to_request(parse(raw), raw, LIMIT)


def test_include_usage_needs_to_be_asked_for() -> None:
    assert not parse(body(stream=True)).include_usage
    assert not parse(body(stream=True, stream_options={})).include_usage
    assert parse(body(stream=True, stream_options={"include_usage": True})).include_usage
    assert openai_request.parse(body(n=3)).choices == 3
