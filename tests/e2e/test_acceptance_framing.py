"""`docs/acceptance.md` B: usage, finish reasons, UTF-8, and honest responses, on every surface."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support.clients import RawRequest, assert_positions_tile, chat_body, frames, text_of
from tests.support.mesh import MeshProcesses

PATH = "/v1/chat/completions"


def sdk(mesh: MeshProcesses) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=mesh.edge_url + "/v1", api_key="none", max_retries=0)


async def stream_events(mesh: MeshProcesses, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every chunk of a stream as JSON; asserts that it ends with [DONE]."""
    request = await RawRequest.post(mesh.edge_url + PATH, {**body, "stream": True})
    assert await request.head() == 200, await request.body()
    data = [event async for event in request.events()]
    request.cut()
    assert data[-1] == "[DONE]"
    return [json.loads(event) for event in data[:-1]]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"max_tokens": 5}, "length"), ({"stop": ["e"]}, "stop"), ({"max_tokens": 300, "stop": [" "]}, "stop")],
)
async def test_b1_usage_comes_once_in_a_chunk_of_its_own_before_done(
    mesh: MeshProcesses, fields: dict[str, Any], reason: str
) -> None:
    body = chat_body("b1 " + reason, stream_options={"include_usage": True}, **fields)
    chunks = await stream_events(mesh, body)
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    assert with_usage == [chunks[-1]]
    assert chunks[-1]["choices"] == []
    finish = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert finish == [reason]
    whole = await RawRequest.post(mesh.edge_url + PATH, body | {"stream": False, "stream_options": None})
    assert await whole.head() == 200
    answer = json.loads(await whole.body())
    assert answer["usage"]["completion_tokens"] == chunks[-1]["usage"]["completion_tokens"]
    assert answer["choices"][0]["finish_reason"] == reason
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert answer["choices"][0]["message"]["content"] == text


async def test_b1_without_include_usage_no_chunk_carries_usage(mesh: MeshProcesses) -> None:
    chunks = await stream_events(mesh, chat_body("b1 none", max_tokens=4))
    assert all(not chunk.get("usage") for chunk in chunks)


async def test_b1_two_choices_each_finish_once(mesh: MeshProcesses) -> None:
    finish: dict[int, list[str]] = {}
    texts: dict[int, str] = {0: "", 1: ""}
    usage = []
    async with sdk(mesh) as client:
        stream = await client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": "b1 two"}],
            n=2,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.usage:
                usage.append(chunk.usage)
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    finish.setdefault(choice.index, []).append(choice.finish_reason)
    assert finish == {0: ["length"], 1: ["length"]}
    assert len(usage) == 1
    assert usage[0].completion_tokens == 24
    assert all(texts.values())


async def test_b1_a_websocket_gets_usage_in_finished(mesh: MeshProcesses) -> None:
    async with frames(mesh.websocket_url) as client:
        await client.open("x", "b1 websocket", params={"max_tokens": 7})
        seen = await client.until("finished", "x")
    kinds = [frame["type"] for frame in seen]
    assert kinds[:2] == ["accepted", "started"]
    assert kinds.count("finished") == 1
    assert kinds.count("choice_finished") == 1
    assert seen[-1]["finish_reason"] == "length"
    assert seen[-1]["usage"]["completion_tokens"] == 7
    assert_positions_tile(seen, "x")


async def test_b2_text_is_whole_on_every_surface(mesh: MeshProcesses) -> None:
    """The simulated text mixes scripts; the fault cuts the engine's bytes inside code points."""
    body = chat_body("b2 split 河流", max_tokens=120, seed=7)
    plain = await RawRequest.post(mesh.edge_url + PATH, body)
    assert await plain.head() == 200
    expected = json.loads(await plain.body())["choices"][0]["message"]["content"]
    assert any(ord(character) > 0xFFFF for character in expected), "the text should hold four-byte characters"
    chunks = await stream_events(mesh, body | {"streamway_faults": {"split_utf8": True}})
    streamed = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert streamed == expected
    async with frames(mesh.websocket_url) as client:
        await client.open("x", "b2 split 河流", params={"max_tokens": 120, "seed": 7})
        assert text_of(await client.until("finished", "x")) == expected


async def test_b4_an_engine_without_usage_is_told_as_such(mesh: MeshProcesses) -> None:
    request = await RawRequest.post(
        mesh.edge_url + PATH, chat_body("b4", max_tokens=5, streamway_faults={"no_usage": True})
    )
    assert await request.head() == 200
    answer = json.loads(await request.body())
    assert answer["choices"][0]["message"]["content"]


async def test_b4_content_length_is_right_for_text_of_many_bytes(mesh: MeshProcesses) -> None:
    request = await RawRequest.post(mesh.edge_url + PATH, chat_body("b4 length 河", max_tokens=60))
    assert await request.head() == 200
    body = await request.body()
    assert len(body) == int(request.headers["content-length"])
    json.loads(body)


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_b4_an_engine_refusal_is_passed_on(mesh: MeshProcesses, status: int) -> None:
    request = await RawRequest.post(
        mesh.edge_url + PATH, chat_body("b4 refused", streamway_faults={"status": status, "message": "no such tool"})
    )
    assert await request.head() == 400
    error = json.loads(await request.body())["error"]
    assert "no such tool" in error["message"]
    assert error["code"] == "engine_rejected"


@pytest.mark.parametrize("fault", [{"status": 500}, {"garbage_at_token": 1}, {"die_at_token": 1}])
async def test_b4_a_broken_engine_is_unavailable_and_named(mesh: MeshProcesses, fault: dict[str, Any]) -> None:
    request = await RawRequest.post(mesh.edge_url + PATH, chat_body("b4 broken", streamway_faults=fault))
    assert await request.head() == 502
    error = json.loads(await request.body())["error"]
    assert error["code"] == "engine_failed"
    assert "adapter-" in error["message"]


async def test_b4_an_engine_that_dies_in_mid_answer_ends_the_stream_in_band(mesh: MeshProcesses) -> None:
    request = await RawRequest.post(
        mesh.edge_url + PATH, chat_body("b4 dies", max_tokens=50, stream=True, streamway_faults={"die_at_token": 10})
    )
    assert await request.head() == 200
    data = [json.loads(event) async for event in request.events() if event != "[DONE]"]
    assert data[-1]["error"]["code"] == "engine_failed"
    assert all("error" not in chunk for chunk in data[:-1])
