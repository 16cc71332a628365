"""What a question is asked in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamway.cachekey import canonical_form, context_key, partition_key, question_of
from streamway.v1 import common_pb2

SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "How do I reset my password?"}


def form(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": list(messages), "temperature": 0, **more}
    return canonical_form(common_pb2.GenerationRequest(model="m", openai_body=json.dumps(body).encode()))


def key(*messages: dict[str, Any], tenant: str = "t", model: str = "m", encoder: str = "e", **more: Any) -> bytes:
    return partition_key(context_key(tenant, model, form(*messages, **more)), encoder)


HERE = key(SYSTEM, ASKED)


def test_h1_other_words_in_the_last_turn_are_the_same_context() -> None:
    assert key(SYSTEM, {"role": "user", "content": "I forgot my password."}) == HERE
    assert key(SYSTEM, {"role": "user", "content": [{"type": "text", "text": "Forgot it."}]}) == HERE


@pytest.mark.parametrize(
    "other",
    [
        key(SYSTEM, ASKED, tenant="u"),
        key(SYSTEM, ASKED, model="n"),
        key(SYSTEM, ASKED, encoder="f"),
        key(ASKED),
        key({"role": "system", "content": "Be long."}, ASKED),
        key(SYSTEM, {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}, ASKED),
        key(SYSTEM, {**ASKED, "name": "ann"}),
        key(SYSTEM, ASKED, temperature=0.5),
        key(SYSTEM, ASKED, max_tokens=5),
        key(SYSTEM, ASKED, stop=["."]),
        key(SYSTEM, ASKED, response_format={"type": "json_object"}),
        key(SYSTEM, ASKED, something_new=1),
    ],
)
def test_h1_whatever_else_differs_is_another_context(other: bytes) -> None:
    assert other != HERE


@pytest.mark.parametrize(
    "last",
    [
        {"role": "assistant", "content": "And then"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": ""},
        {"role": "user", "content": 5},
        {"role": "user"},
    ],
)
def test_only_plain_words_of_a_user_are_a_question(last: dict[str, Any]) -> None:
    assert question_of(form(SYSTEM, last)) == ""


def test_a_request_without_turns_has_no_question() -> None:
    assert question_of({}) == question_of({"messages": []}) == question_of({"messages": ["hi"]}) == ""
