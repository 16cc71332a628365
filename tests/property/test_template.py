"""Text that is read together is the text that is read chunk by chunk, whatever it is and however it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.backends.openai_http.chunks import BadChunk, ChunkReader, EngineSaid
from services.inference_adapter.backends.openai_http.sse import EventTooLarge, SSEParser
from services.inference_adapter.core.numbering import Numbering
from tests.support.engines import RecordingSink

TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        st.sampled_from(
            [" word", '"', "\\", 'a","b', "data: ", "\n\n", ":", ",", "content", "role", "finish_reason", "null"]
        ),
    ),
    max_size=12,
)


def chunk(text: str, *, plain: bool = False, **more: Any) -> bytes:
    """A chunk with this text, as an engine writes it: escaped where it must be, or wherever it may be."""
    choice = {
        "index": more.pop("index", 0),
        "delta": {"content": text},
        "finish_reason": more.pop("finish_reason", None),
    }
    return json.dumps({"id": "c-1", "choices": [choice], **more}, ensure_ascii=plain, separators=(",", ":")).encode()


def read(packets: list[bytes], *, together: bool) -> tuple[list[Any], str]:
    """Every piece that the sink was told, and what was wrong with the stream."""
    sink = RecordingSink()
    sink.started()
    parser, reader = SSEParser(), ChunkReader(sink)
    problem = ""
    try:
        for packet in packets:
            for event in parser.feed(reader.read_together(parser, packet) if together else packet):
                reader.read(event)
    except (BadChunk, EngineSaid, EventTooLarge) as error:
        problem = type(error).__name__
    return [(piece.choice, piece.text, piece.finish_reason) for piece in sink.pieces], problem


def packed(chunks: list[bytes], draw: st.DataObject) -> list[bytes]:
    """As server-sent events, several in a packet, or one in several."""
    events = b"".join(b"data: %b\n\n" % one for one in chunks)
    places = sorted(draw.draw(st.lists(st.integers(0, len(events)), max_size=6)))
    return [events[start:end] for start, end in zip([0, *places], [*places, len(events)], strict=True)]


@given(TEXTS, st.booleans(), st.data())
def test_together_or_chunk_by_chunk_gives_the_same(texts: list[str], plain: bool, draw: st.DataObject) -> None:
    chunks = [chunk(text, plain=plain) for text in [*texts, "last"]] + [chunk("", finish_reason="stop")]
    packets = packed(chunks, draw)
    made, problem = read(packets, together=True)
    assert (made, problem) == read(packets, together=False)
    assert "".join(text for _, text, _ in made) == "".join(texts) + "last"


@given(TEXTS, st.data())
def test_what_differs_in_each_chunk_is_read_all_the_same(texts: list[str], draw: st.DataObject) -> None:
    chunks = []
    for number, text in enumerate(["a", "b", *texts]):
        more = draw.draw(st.sampled_from([{}, {}, {"created": number}, {"index": 1}, {"usage": {"prompt_tokens": 1}}]))
        chunks.append(chunk(text, **more))
    packets = packed(chunks, draw)
    assert read(packets, together=True) == read(packets, together=False)


@given(st.lists(st.binary(max_size=20), max_size=6), st.data())
def test_what_is_no_json_is_found_out_together_too(middles: list[bytes], draw: st.DataObject) -> None:
    begins, ends = chunk("\0", plain=True).split(b"\\u0000")
    chunks = [chunk("a"), chunk("b"), *(begins + middle + ends for middle in middles if not {10, 13} & set(middle))]
    packets = packed(chunks, draw)
    told = "".join(text for _, text, _ in read(packets, together=True)[0])
    assert read(packets, together=True)[1] == read(packets, together=False)[1]
    assert told == "".join(text for _, text, _ in read(packets, together=False)[0])


def test_halves_of_a_character_in_two_chunks_are_put_together() -> None:
    halves = [b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % half for half in (rb"\ud83d", rb"\ude00")]
    first = [b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % text for text in (b"a", b"b")]
    packet = b"".join(b"data: %b\n\n" % one for one in first + halves)
    assert "".join(text for _, text, _ in read([packet[:1], packet[1:], packet], together=True)[0]) == "ab😀ab😀"


@pytest.mark.parametrize("text", ["c-1", "choices", ":", ",", "0", "null", "stop"])
def test_the_same_bytes_elsewhere_are_not_taken_for_the_text(text: str) -> None:
    packets = [b"data: %b\n\n" % chunk(one) for one in (text, "other", text, "more")]
    assert "".join(made for _, made, _ in read(packets, together=True)[0]) == f"{text}other{text}more"


def test_chunks_that_came_together_are_told_together() -> None:
    told: list[list[str]] = []

    class Sink(RecordingSink):
        def several(self, choice: int, texts: Any) -> None:
            told.append(list(texts))

    sink = Sink()
    sink.started()
    parser, reader = SSEParser(), ChunkReader(sink)
    packets = [chunk("Hel"), chunk("lo"), *[b"\n\ndata: ".join(chunk(text) for text in (" w", "or\n", '"ld'))]]
    for packet in packets:
        for event in parser.feed(reader.read_together(parser, b"data: %b\n\n" % packet)):
            reader.read(event)
    assert told == [[" w", "or\n", '"ld']]


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4)), max_size=8
    ),
    st.data(),
)
def test_pieces_are_numbered_as_if_each_came_alone(runs: list[tuple[int, list[str]]], draw: st.DataObject) -> None:
    one, many = Numbering(), Numbering()
    for choice, texts in runs:
        many.several(choice, texts)
        for text in texts:
            one.piece(choice, text)
        assert one.pending_units == many.pending_units
        if draw.draw(st.booleans()):
            assert one.take() == many.take()
    assert one.take() == many.take()
    assert (one.position, one.units, one.tokens) == (many.position, many.units, many.tokens)
