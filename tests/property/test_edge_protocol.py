"""The edge's codecs against anything: they never crash, and never cut or change a text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge.core import openai_request, ws_protocol
from services.edge.core.commands import BadFrame
from services.edge.core.openai_chunks import ChunkEncoder
from services.edge.core.ws_frames import GenerationFrames
from streamway.errors import StreamwayError
from streamway.v1 import common_pb2
from tests.unit.services.edge.core.test_ws_frames import fields

TEXT = st.text(max_size=300)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["type", "id", "model", "messages", "params", "session", "priority", "deadline_ms", "cache", "t"]
NEAR = st.fixed_dictionaries({"type": st.sampled_from(["open", "cancel", "ping", "x"])}).flatmap(
    lambda base: st.dictionaries(st.sampled_from(NAMES), JSON, max_size=8).map(lambda more: {**more, **base})
)


@given(st.text() | JSON.map(json.dumps) | NEAR.map(json.dumps))
def test_any_frame_is_a_command_or_a_documented_error(text: str) -> None:
    refusal = None
    try:
        command = ws_protocol.parse(text)
        if isinstance(command, ws_protocol.OpenFrame):
            ws_protocol.to_request(command, 0)
    except BadFrame as bad:
        refusal = bad
    assert refusal is None or (isinstance(refusal.error, StreamwayError) and len(refusal.id) <= 64)


@given(st.binary() | JSON.map(json.dumps).map(str.encode))
def test_any_body_is_a_request_or_a_documented_error(body: bytes) -> None:
    try:
        chat = openai_request.parse(body)
    except StreamwayError:
        return
    openai_request.to_request(chat, body, 1 << 20)


@given(st.text(min_size=1, max_size=64), TEXT, st.integers(1, 2**53), st.integers(0, 15))
def test_a_token_frame_gives_back_exactly_its_text(id_: str, text: str, position: int, choice: int) -> None:
    event = common_pb2.Event(position=position, token=common_pb2.Token(text=text, choice=choice, units=1))
    assert fields(GenerationFrames(id_).token(event)) == [
        {"type": "token", "id": id_, "choice": choice, "position": position, "text": text}
    ]


@given(st.lists(TEXT, min_size=1, max_size=10), st.text(min_size=1, max_size=40))
def test_chunks_give_back_exactly_their_texts(texts: list[str], model: str) -> None:
    encoder = ChunkEncoder("g", model, 0, 1, include_usage=False)
    data = b""
    for position, text in enumerate(texts, 3):
        data += encoder.token(common_pb2.Event(position=position, token=common_pb2.Token(text=text, units=1)))
    # The data of an event never holds a line break, so that lines are events.
    lines = [line for line in data.split(b"\n") if line.startswith(b"data: ")]
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines]
    assert [delta.get("content", "") for delta in deltas] == texts


@pytest.mark.parametrize("cut", range(1, 5))
def test_b2_no_frame_holds_part_of_a_code_point(cut: int) -> None:
    text = "aé漢🌍" * cut
    event = common_pb2.Event(position=3, token=common_pb2.Token(text=text, units=1))
    [frame] = fields(GenerationFrames("a").token(event))
    assert frame["text"] == text
