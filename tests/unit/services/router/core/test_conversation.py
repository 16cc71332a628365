"""What is kept of a conversation, and the request it makes with a new turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.router.core.conversation import answer_of, choices_of, put_in_front, sent
from streamway.errors import InvalidArgument, Malformed, TooLarge
from streamway.v1 import common_pb2

_MOST = 1_000_000


def typed(*messages: tuple[str, str]) -> common_pb2.GenerationRequest:
    return common_pb2.GenerationRequest(
        messages=[common_pb2.Message(role=role, content=content) for role, content in messages]
    )


def body(*messages: dict[str, Any], **fields: Any) -> common_pb2.GenerationRequest:
    return common_pb2.GenerationRequest(openai_body=json.dumps({"messages": messages, **fields}).encode())


def tokens(*pieces: str, raw: dict[str, Any] | None = None) -> list[common_pb2.Event]:
    events = [common_pb2.Event(token=common_pb2.Token(text=piece)) for piece in pieces]
    if raw is not None:
        events.append(common_pb2.Event(token=common_pb2.Token(raw_delta=json.dumps(raw).encode())))
    return [common_pb2.Event(started=common_pb2.Started()), *events, common_pb2.Event(finished=common_pb2.Finished())]


def test_the_system_messages_in_front_are_the_opening() -> None:
    told = sent(typed(("system", "a"), ("developer", "b"), ("user", "c"), ("system", "d")))
    assert [message["content"] for message in json.loads(b"[%b]" % told.opening.rstrip(b","))] == ["a", "b"]
    assert [message["content"] for message in json.loads(b"[%b]" % told.turns.rstrip(b","))] == ["c", "d"]
    assert told.text == told.opening + told.turns


def test_a_body_with_everything_in_front_says_the_same_as_one_that_was_sent_whole() -> None:
    first, second = {"role": "user", "content": [{"type": "text", "text": "é"}]}, {"role": "user", "content": "b"}
    answer = answer_of(tokens("Hel", "lo", raw={"delta": {"reasoning_content": "hm"}}))
    request = body(second, temperature=0.5, x_own=[1, None])
    put_in_front(request, sent(body(first)).text + answer, _MOST, "S")
    said = {"role": "assistant", "content": "Hello"}
    assert json.loads(request.openai_body) == {
        "messages": [first, said, second],
        "temperature": 0.5,
        "x_own": [1, None],
    }
    assert [(message.role, message.content) for message in request.messages] == [
        *(("user", "é"), ("assistant", "Hello"), ("user", "b"))
    ]


def test_typed_turns_grow_as_typed_turns_with_their_names() -> None:
    request = typed(("user", "b"))
    first = typed(("user", "a"))
    first.messages[0].name = "ann"
    put_in_front(request, sent(first).text + answer_of(tokens("x")), _MOST, "S")
    assert [(each.role, each.content, each.name) for each in request.messages] == [
        *(("user", "a", "ann"), ("assistant", "x", ""), ("user", "b", ""))
    ]
    assert not request.openai_body


def test_tool_calls_of_an_answer_are_kept_and_no_typed_turn_goes_on_with_them() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    answer = answer_of(tokens(raw={"delta": {"role": "assistant", "tool_calls": [call]}}))
    (kept,) = json.loads(b"[%b]" % answer.rstrip(b","))
    assert kept["content"] is None
    assert kept["tool_calls"] == [{name: value for name, value in call.items() if name != "index"}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "noon"}
    put_in_front(body(result), answer, _MOST, "S")
    with pytest.raises(InvalidArgument):
        put_in_front(typed(("user", "b")), answer, _MOST, "S")


def test_an_empty_answer_is_a_turn_too() -> None:
    assert json.loads(answer_of(tokens()).rstrip(b",")) == {"role": "assistant", "content": ""}


def test_a_body_without_messages_or_with_none_that_can_be_read_is_refused() -> None:
    for request in (common_pb2.GenerationRequest(openai_body=b"{}"), body(), typed()):
        with pytest.raises(InvalidArgument):
            sent(request)
    for raw in (b'{"messages": 1}', b'{"messages": [1]}', b"{", b'{"messages": [{"role": "\xff"}]}'):
        with pytest.raises(Malformed):
            sent(common_pb2.GenerationRequest(openai_body=raw))


def test_what_does_not_fit_loses_its_typed_copy_first() -> None:
    kept = sent(typed(("user", "x" * 40_000))).text
    request = body({"role": "user", "content": "b"})
    put_in_front(request, kept, 70_000, "S")
    assert not request.messages
    assert len(request.openai_body) > 40_000
    with pytest.raises(TooLarge, match="setting S"):
        put_in_front(body({"role": "user", "content": "b"}), kept, 50_000, "S")


def test_how_many_choices_are_asked_for() -> None:
    request = typed(("user", "a"))
    assert choices_of(request, None) == 1
    request.sampling.n = 3
    assert choices_of(request, None) == 3
    assert choices_of(request, 2) == 2
