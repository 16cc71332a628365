"""The edge's codecs against anything: they never crash, and never cut or change a text."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge.core import openai_request
from services.edge.core.commands import BadFrame, Resume, cursor_of
from services.edge.core.openai_chunks import ChunkEncoder
from services.edge.core.ws_frames import GenerationFrames
from services.edge.core.ws_json import JsonDialect
from services.edge.io.event_readers import EventStreamReader
from streamway.errors import InvalidArgument, StreamwayError
from streamway.journal.cursor import START, Cursor
from streamway.v1 import common_pb2
from tests.unit.services.edge.core.test_ws_frames import fields

TEXT = st.text(max_size=300)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["type", "id", "model", "messages", "params", "session", "priority", "deadline_ms", "cache", "t", "generation"]
NAMES += ["after", "restore_id", "durability", "on_disconnect", "idempotency_key"]
KINDS = ["open", "cancel", "resume", "restore", "ping", "x"]
NEAR = st.fixed_dictionaries({"type": st.sampled_from(KINDS)}).flatmap(
    lambda base: st.dictionaries(st.sampled_from(NAMES), JSON, max_size=8).map(lambda more: {**more, **base})
)


@given(st.text() | JSON.map(json.dumps) | NEAR.map(json.dumps))
def test_any_frame_is_a_command_or_a_documented_error(text: str) -> None:
    refusal = None
    try:
        JsonDialect().parse(text, 0)
    except BadFrame as bad:
        refusal = bad
    assert refusal is None or (isinstance(refusal.error, StreamwayError) and len(str(refusal.id)) <= 64)


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


CURSORS = st.builds(Cursor, st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1)) | st.just(START)


@given(CURSORS, st.text(min_size=1, max_size=64), st.uuids(version=4))
def test_a_cursor_comes_back_from_a_client_as_it_was_given(cursor: Cursor, id_: str, generation: object) -> None:
    frame = {"type": "resume", "id": id_, "generation": str(generation), "after": str(cursor)}
    assert JsonDialect().parse(json.dumps(frame), 0) == Resume(id_, str(generation), cursor)


@given(st.text(max_size=60) | st.from_regex(r"[0-9]{1,25}-[0-9]{1,25}", fullmatch=True))
def test_any_other_text_is_no_cursor_and_the_field_is_named(text: str) -> None:
    try:
        assert str(cursor_of("after", text)) == (text or "0-0")
    except InvalidArgument as refused:
        assert refused.param == "after"  # noqa: PT017 — both ways are right


@given(st.lists(st.tuples(TEXT, st.booleans()), min_size=1, max_size=8), st.integers(0, 12))
def test_server_sent_events_from_any_cursor_give_the_rest_exactly(pieces: list[tuple[str, bool]], cut: int) -> None:
    """Going on after the last id, no object is lost, and only a pair that was cut in the middle is repeated."""

    async def streamed(after: int) -> list[tuple[str, str]]:
        reader = EventStreamReader("g", START, 1 << 20)
        for position, (text, ends) in enumerate(pieces, 3):
            event = common_pb2.Event(epoch=7, position=position, token=common_pb2.Token(text=text, units=1))
            if ends:
                event.token.choice_finished.finish_reason = "stop"
            if position > after:
                reader.event(event, "token")
        found = []
        for block in b"".join(reader._held).decode().split("\n\n")[:-1]:
            *id_, data = block.split("\n")
            found.append((id_[0].removeprefix("id: ") if id_ else "", data.removeprefix("data: ")))
        return found

    whole = asyncio.run(streamed(0))
    read = whole[:cut]
    last = next((id_ for id_, _ in reversed(read) if id_), "7-0")
    rest = asyncio.run(streamed(int(last.split("-")[1])))
    assert whole[len(whole) - len(rest) :] == rest
    assert len(read) - (len(whole) - len(rest)) in (0, 1)
