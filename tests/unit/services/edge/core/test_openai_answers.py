"""Events as OpenAI's chunks and as one completion: both must tell the same story."""

from __future__ import annotations

import json
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from services.edge.core.openai_chunks import ChunkEncoder, error_event
from services.edge.core.openai_completion import CompletionBuilder
from streamway.errors import EngineFailed
from streamway.v1 import common_pb2


def token(
    position: int, text: str = "", choice: int = 0, raw: dict[str, Any] | None = None, finish: str = ""
) -> common_pb2.Event:
    event = common_pb2.Event(
        epoch=1 << 20, position=position, token=common_pb2.Token(text=text, choice=choice, units=1)
    )
    if raw is not None:
        event.token.raw_delta = json.dumps(raw).encode()
    if finish:
        event.token.choice_finished.finish_reason = finish
    return event


def end(position: int, **usage: int) -> common_pb2.Event:
    finished = common_pb2.Finished(finish_reason="stop", usage=common_pb2.Usage(**usage))
    return common_pb2.Event(epoch=1 << 20, position=position, finished=finished)


def chunks(*events: common_pb2.Event, usage: bool = False, choices: int = 1) -> list[dict[str, Any]]:
    encoder = ChunkEncoder("g%d", "m", 5, choices, include_usage=usage)
    text = b"".join(
        encoder.token(event) if event.HasField("token") else encoder.finished(event) for event in events
    ).decode()
    data = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    if events[-1].HasField("finished"):
        assert data.pop() == "[DONE]"
    found = [json.loads(line) for line in data]
    for chunk in found:
        ChatCompletionChunk.model_validate(chunk)
    return found


def completion(*events: common_pb2.Event, choices: int = 1) -> dict[str, Any]:
    builder = CompletionBuilder("g", "m", 5, choices)
    for event in events[:-1]:
        builder.token(event)
    result = builder.result(events[-1])
    ChatCompletion.model_validate(result)
    return result


def test_the_role_comes_with_the_first_piece_of_each_choice() -> None:
    found = chunks(token(3, "a"), token(4, "x", 1), token(5, "b"), choices=2)
    assert [chunk["choices"][0]["delta"] for chunk in found] == [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "x"},
        {"content": "b"},
    ]


def test_the_finish_reason_has_a_chunk_of_its_own_with_nothing_else() -> None:
    found = chunks(token(3, "a"), token(4, "b", finish="length"))
    assert found[-1]["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}]
    assert found[-2]["choices"][0]["finish_reason"] is None


def test_an_empty_answer_still_has_a_role_and_a_finish_reason() -> None:
    found = chunks(token(3, "", finish="stop"), end(4))
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert found[1]["choices"][0]["finish_reason"] == "stop"
    assert completion(token(3, "", finish="stop"), end(4))["choices"][0]["message"]["content"] == ""


def test_usage_comes_once_and_is_null_before_when_it_was_asked_for() -> None:
    found = chunks(token(3, "a", finish="stop"), end(4, prompt_tokens=3, completion_tokens=1), usage=True)
    assert [chunk["usage"] for chunk in found[:-1]] == [None, None]
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] == 4
    assert all("usage" not in chunk for chunk in chunks(token(3, "a", finish="stop"), end(4)))


def test_tool_calls_in_pieces_become_whole_ones() -> None:
    def piece(index: int, **call: Any) -> dict[str, Any]:
        return {"delta": {"tool_calls": [{"index": index, **call}]}}

    events = (
        token(3, raw=piece(0, id="a", type="function", function={"name": "f", "arguments": ""})),
        token(4, raw=piece(0, function={"arguments": '{"x"'})),
        token(5, raw=piece(1, id="b", type="function", function={"name": "g", "arguments": "{}"})),
        token(6, raw=piece(0, function={"arguments": ":1}"}), finish="tool_calls"),
        end(7),
    )
    message = completion(*events)["choices"][0]["message"]
    assert message["content"] is None
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        ("a", {"name": "f", "arguments": '{"x":1}'}),
        ("b", {"name": "g", "arguments": "{}"}),
    ]
    streamed = chunks(*events)
    assert streamed[0]["choices"][0]["delta"]["role"] == "assistant"
    assert streamed[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_log_probabilities_are_kept_in_order() -> None:
    def piece(text: str) -> dict[str, Any]:
        one = {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}
        return {"delta": {"content": text}, "logprobs": {"content": [one], "refusal": None}}

    events = (token(3, "a", raw=piece("a")), token(4, "b", raw=piece("b"), finish="stop"), end(5))
    choice = completion(*events)["choices"][0]
    assert choice["message"]["content"] == "ab"
    assert [one["token"] for one in choice["logprobs"]["content"]] == ["a", "b"]
    assert [chunk["choices"][0]["logprobs"]["content"][0]["token"] for chunk in chunks(*events)[:2]] == ["a", "b"]


def test_reasoning_and_what_engines_call_their_own_are_joined() -> None:
    events = (
        token(3, raw={"delta": {"reasoning_content": "th"}}),
        token(4, raw={"delta": {"reasoning_content": "ink"}}),
        token(5, "so", finish="stop"),
        end(6),
    )
    message = completion(*events)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("think", "so")


def test_broken_raw_json_falls_back_to_the_text() -> None:
    event = token(3, "x", finish="stop")
    event.token.raw_delta = b"{broken"
    assert completion(event, end(4))["choices"][0]["message"]["content"] == "x"
    assert chunks(event)[0]["choices"][0]["delta"]["content"] == "x"


def test_text_with_anything_in_it_stays_itself() -> None:
    text = 'a"b\\\n\r\u2028%d 🌍\x00'
    assert chunks(token(3, "a"), token(4, text))[1]["choices"][0]["delta"]["content"] == text


def test_an_error_in_band_is_openais_body() -> None:
    data = json.loads(error_event(EngineFailed("w", "gone"), "r1").decode().removeprefix("data: "))
    assert data["error"]["code"] == "engine_failed"
    assert (data["request_id"], data["retryable"]) == ("r1", True)
