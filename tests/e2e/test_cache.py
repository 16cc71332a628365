"""The cache through a whole mesh: hits that are as live answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import openai

from streamway.config import SharedSettings
from streamway.rpc import mesh_metadata, open_channel
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from tests.e2e.conftest import CACHE_MESH_TOKEN, key_of
from tests.support.mesh import MeshProcesses

ASKED, AGAIN = "How do I descale a kettle?", "How can I descale a kettle?"


async def test_h4_a_semantic_hit_has_the_shape_of_a_live_answer(cache_mesh: MeshProcesses) -> None:
    base_url = cache_mesh.edge_url + "/v1"
    # Without a channel the lookup is in front: nothing depends on who is quicker.
    headers = {"x-streamway-cache": "semantic", "x-streamway-durability": "off"}
    async with openai.AsyncOpenAI(base_url=base_url, api_key=key_of("kettle"), max_retries=0, timeout=30) as client:

        def wanted(text: str) -> dict[str, Any]:
            return {
                "model": "simulated",
                "messages": [{"role": "user", "content": text}],
                "extra_headers": headers,
            }

        async def ask(text: str) -> tuple[dict[str, str], str]:
            raw = await client.chat.completions.with_raw_response.create(**wanted(text))
            return dict(raw.headers), raw.parse().choices[0].message.content or ""

        async def ask_until(text: str, state: str) -> tuple[dict[str, str], str]:
            for _ in range(200):  # what is stored is off the path: it may take a moment
                told, answer = await ask(text)
                if told["x-streamway-cache"] == state:
                    break
                await asyncio.sleep(0.05)
            assert told["x-streamway-cache"] == state
            return told, answer

        told, kept = await ask(ASKED)
        assert told["x-streamway-cache"] == "miss"
        assert "x-streamway-cache-entry" not in told
        told, text = await ask_until(ASKED, "exact")
        assert (text, told["x-streamway-cache-similarity"]) == (kept, "1.0000")
        entry = told["x-streamway-cache-entry"]

        told, text = await ask(AGAIN)
        assert (told["x-streamway-cache"], told["x-streamway-cache-entry"], text) == ("semantic", entry, kept)
        assert 0.95 <= float(told["x-streamway-cache-similarity"]) < 1
        assert "x-streamway-worker" not in told
        stream = await client.chat.completions.create(
            **wanted(AGAIN), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == kept
    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 1, "its borders are kept"
    assert chunks[-1].usage is not None


SLOW = {"first_token_delay_s": 40}


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "simulated", "messages": [{"role": "user", "content": text}], **more}


async def stored(cache_mesh: MeshProcesses, body: dict[str, Any], *texts: str) -> str:
    """Puts an answer into the cache that nobody has to wait for."""
    events = [
        common_pb2.Event(position=1, accepted=common_pb2.Accepted()),
        common_pb2.Event(position=2, started=common_pb2.Started()),
    ]
    for text in texts:
        position = events[-1].position + 1
        events.append(common_pb2.Event(position=position, token=common_pb2.Token(text=text, units=1)))
    events[-1].token.choice_finished.finish_reason = "stop"
    usage = common_pb2.Usage(prompt_tokens=7, completion_tokens=len(texts), cached_prompt_tokens=2, reasoning_tokens=1)
    finished = common_pb2.Finished(finish_reason="stop", usage=usage)
    events.append(common_pb2.Event(position=events[-1].position + 1, finished=finished))
    asked = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    request = common_pb2.GenerationRequest(
        model="simulated",
        tenant="kettle",
        openai_body=json.dumps(asked).encode(),
        cache=common_pb2.CACHE_POLICY_SEMANTIC,
    )
    shared = SharedSettings(mesh_token=CACHE_MESH_TOKEN)
    metadata = mesh_metadata(shared)
    channel = open_channel(cache_mesh.address("cache-0"), shared)
    try:
        stub = cache_pb2_grpc.CacheServiceStub(channel)
        kept = await stub.Store(cache_pb2.StoreRequest(request=request, events=events), metadata=metadata)  # type: ignore[misc]
        assert kept.entry, kept.refused
        probe = common_pb2.GenerationRequest()
        probe.CopyFrom(request)
        probe.openai_body = json.dumps({**asked, "messages": chat(AGAIN)["messages"]}).encode()
        for _ in range(400):  # what is found by likeness is encoded a moment later
            told = await stub.Explain(cache_pb2.ExplainRequest(request=probe), metadata=metadata)  # type: ignore[misc]
            if kept.entry in {each.entry for each in told.candidates}:
                break
            await asyncio.sleep(0.05)
    finally:
        await channel.close()
    return str(kept.entry)


async def test_h4_what_the_semantic_level_finds_before_the_first_token_is_the_answer_on_every_surface(
    cache_mesh: MeshProcesses,
) -> None:
    wanted = chat(AGAIN, streamway_faults=SLOW)
    entry = await stored(cache_mesh, chat(ASKED, streamway_faults=SLOW), "Use ", "vinegar", ".")
    headers = {"x-streamway-cache": "semantic", "Authorization": f"Bearer {key_of('kettle')}"}
    async with aiohttp.ClientSession(cache_mesh.edge_url, headers=headers) as client:
        async with client.post("/v1/chat/completions", json=wanted) as response:
            assert response.status == 200
            whole, told = await response.json(), response.headers
        assert whole["choices"][0]["message"]["content"] == "Use vinegar."
        assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 1
        assert (told["x-streamway-cache"], told["x-streamway-cache-entry"]) == ("semantic", entry)
        assert told["x-streamway-cache-saved-tokens"] == "10"
        assert int(told["age"]) < 600
        assert "x-streamway-worker" not in told

        streamed = {**wanted, "stream": True, "stream_options": {"include_usage": True}}
        async with client.post("/v1/chat/completions", json=streamed) as response:
            lines = [line.decode().strip() async for line in response.content if line.strip()]
            assert response.headers["x-streamway-cache"] == "semantic"
            assert response.headers["x-streamway-cache-entry"] == entry
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
        pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
        assert [piece for piece in pieces if piece] == ["Use ", "vinegar", "."], "its borders are kept"
        assert chunks[-1]["usage"] == whole["usage"]
        assert lines[-1] == "data: [DONE]"


async def test_cache_control_is_kept_to_on_http(cache_mesh: MeshProcesses) -> None:
    headers = {"x-streamway-cache": "exact", "Authorization": f"Bearer {key_of('kettle')}"}
    async with aiohttp.ClientSession(cache_mesh.edge_url, headers=headers) as client:

        async def ask(control: str, text: str) -> tuple[int, str, Any]:
            body = chat(text, streamway_faults={"answer_tokens": 3})
            async with client.post("/v1/chat/completions", json=body, headers={"cache-control": control}) as response:
                return response.status, response.headers.get("x-streamway-cache", ""), await response.json()

        async def until_stored(text: str) -> None:
            for _ in range(200):  # what is stored is off the path
                if (await ask("only-if-cached", text))[0] == 200:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError("it was not stored")

        status, _, refused = await ask("only-if-cached", "a")
        assert (status, refused["error"]["code"]) == (504, "not_cached")
        assert (await ask("no-store", "a"))[:2] == (200, "miss")
        assert (await ask("no-cache", "b"))[:2] == (200, "miss")
        await until_stored("b")
        assert (await ask("only-if-cached", "a"))[0] == 504, "what no-store asked was not stored, long after"
        assert (await ask("no-store, max-age=600", "b"))[:2] == (200, "exact"), "no-store may read"
        assert (await ask("no-cache", "b"))[:2] == (200, "miss")
        assert (await ask("max-age=0", "b"))[:2] == (200, "miss")
        assert (await ask("no-cache, only-if-cached", "b"))[0] == 504, "the stricter of two holds"
