"""The cache through a whole mesh: hits that are as live answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.mesh import MeshProcesses

ASKED, AGAIN = "How do I descale a kettle?", "How can I descale a kettle?"


@pytest.fixture(scope="module")
def cache_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """A mesh whose semantic level serves all that it finds: no draw sends a question to a worker."""
    environment = {
        "STREAMWAY_CACHE_SEMANTIC_THRESHOLD": "0.95",
        "STREAMWAY_CACHE_SEMANTIC_AUDIT_SHARE": "0",
        "STREAMWAY_CACHE_SEMANTIC_COMPARE_SHARE": "0",
        # What is measured here is not how long a busy machine takes to encode.
        "STREAMWAY_CACHE_ENCODER_TIMEOUT_S": "10",
        "STREAMWAY_ROUTER_CACHE_SEMANTIC_BUDGET_MS": "1000",
    }
    processes = MeshProcesses(tmp_path_factory.mktemp("cache-mesh"), environment=environment)
    yield processes
    processes.close()


async def test_h4_a_semantic_hit_has_the_shape_of_a_live_answer(cache_mesh: MeshProcesses) -> None:
    base_url = cache_mesh.edge_url + "/v1"
    headers = {"x-streamway-cache": "semantic"}
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=30) as client:

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
