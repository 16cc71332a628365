from __future__ import annotations

import json

import pytest

from services.inference_adapter.core.context import LEAST_BYTES, beginning, conversation, digest, one_token, said
from streamway.v1 import common_pb2

SYSTEM = "You are a helpful assistant. " * 20


def typed(*messages: tuple[str, str]) -> common_pb2.GenerationRequest:
    return common_pb2.GenerationRequest(
        model="m", messages=[common_pb2.Message(role=role, content=content) for role, content in messages]
    )


def original(**body: object) -> common_pb2.GenerationRequest:
    return common_pb2.GenerationRequest(model="m", openai_body=json.dumps(body).encode())


def test_a_conversation_holds_every_message_and_the_answer() -> None:
    context = json.loads(conversation(typed(("system", SYSTEM), ("user", "hi")), "hello"))
    assert context == {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
        ]
    }


def test_of_an_original_body_what_shapes_the_prompt_is_kept_and_nothing_else() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = original(messages=messages, tools=tools, cache_salt="s", temperature=0.5, max_tokens=9, stream=True, n=2)
    assert json.loads(conversation(request, "")) == {"messages": messages, "tools": tools, "cache_salt": "s"}


def test_a_beginning_is_the_leading_system_messages() -> None:
    first = beginning(typed(("system", SYSTEM), ("developer", "Be brief."), ("user", "one"), ("system", "late")))
    assert [message["role"] for message in json.loads(first)["messages"]] == ["system", "developer"]
    assert first == beginning(typed(("system", SYSTEM), ("developer", "Be brief."), ("user", "another")))
    as_body = original(messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": "x"}])
    assert json.loads(beginning(as_body)) == {"messages": [{"role": "system", "content": SYSTEM}]}


def test_a_short_beginning_and_none_at_all_are_not_worth_it() -> None:
    assert beginning(typed(("system", "x" * (LEAST_BYTES - 80)), ("user", "hi"))) == b""
    assert beginning(typed(("user", "hi" * LEAST_BYTES), ("system", SYSTEM))) == b""


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 5}', b"{}", b'{"messages": [\xff]}'])
def test_what_cannot_be_read_has_no_context(body: bytes) -> None:
    request = common_pb2.GenerationRequest(model="m", openai_body=body or b"null")
    assert conversation(request, "x") == b""
    assert beginning(request) == b""
    with pytest.raises(ValueError, match="not a context"):
        one_token(body, "t", "m", "s")


def test_messages_that_are_no_objects_have_no_role() -> None:
    assert beginning(original(messages=[5, "system", None])) == b""


def test_warming_asks_for_one_token_behind_a_message_of_the_user() -> None:
    context = conversation(typed(("user", "hi")), "hello")
    request = one_token(context, "acme", "m", "s")
    body = json.loads(request.openai_body)
    assert (request.tenant, request.model, request.session) == ("acme", "m", "s")
    assert body["max_tokens"] == 1
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    # The answer is unknown: two messages of the user in a row are refused by some templates.
    alone = json.loads(one_token(conversation(typed(("user", "hi")), ""), "acme", "m", "s").openai_body)
    assert [message["content"] for message in alone["messages"]] == ["hi"]


def test_a_context_is_named_by_what_is_in_it() -> None:
    assert digest(b"a") == digest(b"a") != digest(b"b")
    assert len(digest(b"")) == 32


def test_what_was_said_is_one_plain_text_or_nothing() -> None:
    def token(text: str, **fields: object) -> bytes:
        return common_pb2.Event(token=common_pb2.Token(text=text, **fields)).SerializeToString()

    started = common_pb2.Event(started=common_pb2.Started(worker="w")).SerializeToString()
    assert said([started, token("a"), token("b")]) == "ab"
    assert said([token("a"), token("", raw_delta=b"{}")]) == ""
    assert said([token("a"), token("b", choice=1)]) == ""
    assert said([b"\xff\xff"]) == ""
