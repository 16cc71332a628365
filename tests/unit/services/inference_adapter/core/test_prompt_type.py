"""The label of the duration of engine calls: one of five words, whatever a client sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.prompt_type import PromptType, prompt_type
from streamway.v1 import common_pb2


def request(*roles: str, text: str = "hello", **body: Any) -> common_pb2.GenerationRequest:
    made = common_pb2.GenerationRequest(model="m", openai_body=json.dumps(body).encode() if body else b"")
    for role in roles:
        made.messages.add(role=role, content=text)
    return made


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request("user"), PromptType.SINGLE_TURN),
        (request("system", "user"), PromptType.SINGLE_TURN),
        (request("user", "assistant", "user"), PromptType.MULTI_TURN),
        (request(messages=[{"role": "assistant", "content": "a"}]), PromptType.MULTI_TURN),
        (request("user", tools=[{}]), PromptType.TOOLS),
        (request("user", response_format={"type": "json_object"}), PromptType.STRUCTURED),
        (request("user", text="word " * 4000), PromptType.LONG),
    ],
)
def test_the_first_kind_that_fits(asked: common_pb2.GenerationRequest, expected: PromptType) -> None:
    assert prompt_type(asked) is expected


@given(st.binary(max_size=200), st.lists(st.text(max_size=20), max_size=5))
def test_anything_has_a_kind(body: bytes, roles: list[str]) -> None:
    asked = common_pb2.GenerationRequest(openai_body=body)
    for role in roles:
        asked.messages.add(role=role, content=role)
    assert prompt_type(asked) in PromptType
