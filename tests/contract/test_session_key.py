"""A request gets one session key, whether an edge makes it or a router that is called without one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge.core import openai_request, ws_protocol
from streamway.affinity import key_of, session_key
from streamway.v1 import common_pb2

MIB = 1024 * 1024
_texts = st.text(st.characters(codec="utf-8"), max_size=40)
_contents = _texts | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": _texts}), max_size=3)
_turns = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": _contents})
_names = st.none() | st.text(st.characters(codec="utf-8"), max_size=20)


def _at_the_edge(tenant: str, body: bytes, session: str = "") -> str:
    """What `services/edge/io/chat.py` does."""
    chat = openai_request.parse(body)
    key = session_key.choose(session, chat.prompt_cache_key or chat.user or "", "", "")
    return key or session_key.of_prompt(tenant, chat.model, chat.texts())


def _at_the_router(tenant: str, body: bytes, session: str = "", *, most_bytes: int = MIB) -> str:
    request = openai_request.to_request(openai_request.parse(body), body, most_bytes)
    request.tenant, request.session = tenant, session
    return key_of(request)


def _body(messages: list[dict[str, Any]], **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


@given(st.lists(_turns, min_size=1, max_size=4), _names, _names)
def test_edge_and_router_agree_on_every_chat(
    messages: list[dict[str, Any]], user: str | None, cache_key: str | None
) -> None:
    body = _body(messages, user=user, prompt_cache_key=cache_key)
    assert _at_the_router("t", body) == _at_the_edge("t", body)


@pytest.mark.parametrize("session", ["00ff00ff00ff00ff", "chat-7", "ü"])
def test_they_agree_on_explicit_ids(session: str) -> None:
    body = _body([{"role": "user", "content": "x"}], user="me")
    assert _at_the_router("t", body, session) == _at_the_edge("t", body, session)


def test_they_agree_where_only_the_body_is_sent_on() -> None:
    body = _body(
        [{"role": "system", "content": [{"type": "text", "text": "é" * 3000}]}, {"role": "user", "content": "x"}]
    )
    request = openai_request.to_request(openai_request.parse(body), body, len(body) + openai_request.ENVELOPE_BYTES)
    assert not request.messages
    assert key_of(request) == _at_the_edge("", body)


def test_they_agree_on_typed_requests() -> None:
    frame = json.dumps(
        {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    )
    request = ws_protocol.to_request(ws_protocol.parse_body(frame.encode()), 0)
    request.tenant = "t"
    assert key_of(request) == session_key.of_prompt("t", "m", [("system", "s"), ("user", "u")])
    assert key_of(request) == _at_the_edge(
        "t", _body([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    )


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"user": 7}', b'{"messages": "x"}', b"\xff"])
def test_a_body_that_says_nothing_leaves_the_prompt_or_nothing(body: bytes) -> None:
    request = common_pb2.GenerationRequest(model="m", openai_body=body)
    assert key_of(request) == ""
    request.messages.add(role="user", content="x")
    assert key_of(request) == session_key.of_prompt("", "m", [("user", "x")])
