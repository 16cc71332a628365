"""Frames to a client, read back by an independent implementation of RFC 6455."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from services.edge.core import ws_frames
from services.edge.core.ws_frames import GenerationFrames
from streamway.errors import QueueFull, WorkerLost, to_status
from streamway.v1 import common_pb2


def read(data: bytes) -> list[Frame]:
    """Every frame in `data`, by the `websockets` package."""
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    found = []
    while True:
        parsing = Frame.parse(reader.read_exact, mask=False)
        try:
            next(parsing)
        except StopIteration as done:
            found.append(done.value)
        except EOFError:
            return found
        else:
            raise AssertionError("a frame is not complete")


def fields(data: bytes) -> list[dict[str, Any]]:
    frames = read(data)
    assert all(frame.opcode is Opcode.TEXT and frame.fin for frame in frames)
    return [json.loads(frame.data) for frame in frames]


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
def test_a_text_frame_of_any_length_is_read_back(length: int) -> None:
    [frame] = read(ws_frames.text_frame(b"x" * length))
    assert frame.opcode is Opcode.TEXT
    assert frame.data == b"x" * length


def test_pings_pongs_and_closes_are_read_back() -> None:
    ping, pong, close = read(ws_frames.PING + ws_frames.pong_frame(b"abc") + ws_frames.close_frame(4009, "ü" * 100))
    assert (ping.opcode, ping.data) == (Opcode.PING, b"")
    assert (pong.opcode, pong.data) == (Opcode.PONG, b"abc")
    assert close.opcode is Opcode.CLOSE
    assert close.data[:2] == (4009).to_bytes(2, "big")
    assert close.data[2:].decode() == "ü" * 61


def token(position: int, text: str, **more: Any) -> common_pb2.Event:
    return common_pb2.Event(epoch=1, position=position, token=common_pb2.Token(text=text, units=1, **more))


@pytest.mark.parametrize("id_", ["a", 'q"uote', "100%d%", "ünï", "\\", "\n"])
def test_a_token_keeps_id_and_text_whatever_is_in_them(id_: str) -> None:
    frames = GenerationFrames(id_)
    text = 'a"b\\c\n\x00é🌍%s\u2028'
    assert fields(frames.token(token(3, text))) == [
        {"type": "token", "id": id_, "choice": 0, "position": 3, "text": text}
    ]


def test_a_merged_token_says_where_it_begins() -> None:
    event = token(9, "abc", choice=2)
    event.first_position = 7
    [frame] = fields(GenerationFrames("a").token(event))
    assert (frame["first_position"], frame["position"], frame["choice"]) == (7, 9, 2)


def test_the_end_of_a_choice_is_a_frame_of_its_own_behind_its_text() -> None:
    event = token(9, "abc", choice_finished=common_pb2.ChoiceFinished(finish_reason="stop"))
    first, second = fields(GenerationFrames("a").token(event))
    assert first["text"] == "abc"
    assert second == {"type": "choice_finished", "id": "a", "choice": 0, "finish_reason": "stop"}


def test_the_end_of_a_choice_without_text_has_the_position_itself() -> None:
    event = token(9, "", choice_finished=common_pb2.ChoiceFinished(finish_reason="length"))
    assert fields(GenerationFrames("a").token(event)) == [
        {"type": "choice_finished", "id": "a", "choice": 0, "position": 9, "finish_reason": "length"}
    ]


def test_errors_say_whether_and_when_to_try_again() -> None:
    [frame] = fields(ws_frames.error(QueueFull("m", 2.5), "a"))
    assert (frame["id"], frame["reason"], frame["retryable"], frame["retry_after_ms"]) == (
        "a",
        "queue_full",
        True,
        2500,
    )
    lost = common_pb2.Event(error=common_pb2.Error(status=to_status(WorkerLost("w")), delivered_until=17))
    [frame] = fields(GenerationFrames("b").other(lost, "error"))
    assert (frame["id"], frame["delivered_until"]) == ("b", 17)


def test_usage_is_left_out_when_the_engine_did_not_count() -> None:
    event = common_pb2.Event(position=9, finished=common_pb2.Finished(finish_reason="stop"))
    [frame] = fields(GenerationFrames("a").other(event, "finished"))
    assert "usage" not in frame
    event.finished.usage.completion_tokens = 4
    [frame] = fields(GenerationFrames("a").other(event, "finished"))
    assert frame["usage"]["completion_tokens"] == 4
