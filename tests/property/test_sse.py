"""B3: an engine's events are the same however its bytes are cut, however its lines end, whatever comments stand between."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.backends.openai_http.chunks import BadChunk, ChunkReader, EngineSaid
from services.inference_adapter.backends.openai_http.mending import TextMender
from services.inference_adapter.backends.openai_http.sse import EventTooLarge, SSEParser
from tests.support.engines import RecordingSink

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=40)
EVENT = st.lists(LINE, min_size=1, max_size=3)
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])


def written(events: list[list[str]], draw: st.DataObject) -> bytes:
    """The events as a server may write them."""
    ending = draw.draw(ENDINGS)
    lines: list[str] = []
    for event in events:
        for data in event:
            if draw.draw(st.booleans()):
                lines.append(draw.draw(st.sampled_from([": ping", "event: x", "id: 7", "retry: 5", "nonsense", ":"])))
            lines.append(f"data: {data}" if draw.draw(st.booleans()) or data[:1] == " " else f"data:{data}")
        lines.append("")
        if draw.draw(st.booleans()):
            lines.append("")
    return "".join(line + ending for line in lines).encode()


def cut(data: bytes, draw: st.DataObject) -> list[bytes]:
    """The bytes in pieces of 0 … all."""
    places = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=20)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@given(st.lists(EVENT, max_size=6), st.data())
def test_b3_any_cut_and_any_line_ending_give_the_same_events(events: list[list[str]], draw: st.DataObject) -> None:
    parser = SSEParser()
    seen = [event for piece in cut(written(events, draw), draw) for event in parser.feed(piece)]
    assert seen == ["\n".join(event).encode() for event in events]


@given(st.lists(st.lists(LINE, min_size=1, max_size=2), max_size=6), st.data())
def test_b3_an_event_in_each_packet(events: list[list[str]], draw: st.DataObject) -> None:
    parser = SSEParser()
    seen: list[bytes] = []
    for event in events:
        packet = written([event], draw)
        if draw.draw(st.booleans()):
            packet = "".join(f"data: {line}\n" for line in event).encode() + b"\n"
        seen += parser.feed(packet)
    assert seen == ["\n".join(event).encode() for event in events]


@given(st.lists(EVENT, min_size=1, max_size=3), st.data())
def test_b3_one_byte_at_a_time(events: list[list[str]], draw: st.DataObject) -> None:
    data = written(events, draw)
    whole, single = SSEParser(), SSEParser()
    assert [e for at in range(len(data)) for e in single.feed(data[at : at + 1])] == whole.feed(data)


@given(st.binary(max_size=300), st.data())
def test_any_bytes_are_read_the_same_however_they_are_cut(data: bytes, draw: st.DataObject) -> None:
    whole, pieces = SSEParser(), SSEParser()
    assert [event for piece in cut(data, draw) for event in pieces.feed(piece)] == whole.feed(data)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_what_is_kept_is_bounded(data: bytes, limit: int) -> None:
    parser = SSEParser(limit)
    try:
        for at in range(len(data)):
            parser.feed(data[at : at + 1])
            assert parser._kept <= limit
    except EventTooLarge:
        pass


def test_an_endless_line_and_an_endless_event_are_refused() -> None:
    for piece in (b"data: xxxxxxxxxx", b"data: x\n", b"data\n"):
        parser = SSEParser(1000)
        with pytest.raises(EventTooLarge):
            for _ in range(1001):
                parser.feed(piece)


def test_a_byte_order_mark_is_not_part_of_the_first_line() -> None:
    data = b"\xef\xbb\xbfdata: x\n\n"
    for at in range(len(data)):
        parser = SSEParser()
        assert parser.feed(data[:at]) + parser.feed(data[at:]) == [b"x"]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(TEXT, st.data())
def test_b2_bytes_cut_anywhere_come_out_whole(text: str, draw: st.DataObject) -> None:
    mender = TextMender()
    made = ""
    for piece in cut(text.encode(), draw):
        part = mender.feed(piece.decode("utf-8", "surrogateescape"))
        part.encode()  # no half characters
        made += part
    assert made + mender.end() == text


@given(st.text(min_size=0, max_size=20), st.data())
def test_any_text_is_made_sound(text: str, draw: st.DataObject) -> None:
    mender = TextMender()
    (mender.feed(text) + mender.end()).encode()


@given(TEXT)
def test_b2_escaped_surrogate_pairs_cut_in_two_come_out_whole(text: str) -> None:
    sink = RecordingSink()
    sink.started()
    reader = ChunkReader(sink)
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        escaped = f"\\u{units[at : at + 2].hex()}"
        reader.read(b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % escaped.encode())
    reader.read(b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
    assert sink.text() == text


@given(TEXT, st.data())
def test_b2_bytes_of_a_character_in_two_chunks_come_out_whole(text: str, draw: st.DataObject) -> None:
    sink = RecordingSink()
    sink.started()
    reader = ChunkReader(sink)
    for piece in cut(text.encode(), draw):
        content = json.dumps(piece.decode("utf-8", "surrogateescape"), ensure_ascii=False)
        data = '{"choices":[{"index":0,"delta":{"content":' + content + "}}]}"
        reader.read(data.encode("utf-8", "surrogateescape"))
    reader.read(b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
    assert sink.text() == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "index", "usage", "finish_reason", "error", "tool_calls", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_event_is_read_or_refused(data: bytes) -> None:
    sink = RecordingSink()
    sink.started()
    with contextlib.suppress(BadChunk, EngineSaid):
        ChunkReader(sink).read(data)
    for piece in sink.pieces:
        if piece.raw_delta:
            json.loads(piece.raw_delta)


@given(
    JSON.map(lambda value: {"choices": [value]}) | st.builds(lambda d: {"choices": [{"index": 0, "delta": d}]}, JSON)
)
def test_any_choice_is_read_or_refused(chunk: object) -> None:
    test_any_event_is_read_or_refused.hypothesis.inner_test(json.dumps(chunk).encode())  # type: ignore[attr-defined]
