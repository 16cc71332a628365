"""The cache through a whole mesh: hits that are as live answers, on every surface."""

from __future__ import annotations

import asyncio

import openai

from tests.support.mesh import MeshProcesses

QUESTION = "How do I descale a kettle?"
# One in twenty would-be hits is an audit and goes to a worker.
PARAPHRASES = (
    "How can I descale a kettle?",
    "How do you descale a kettle?",
    "How should I descale a kettle?",
    "how do i descale a kettle",
    "How would you descale a kettle?",
)


async def test_h4_a_semantic_hit_has_the_shape_of_a_live_answer(mesh: MeshProcesses) -> None:
    headers = {"x-streamway-cache": "semantic"}
    async with openai.AsyncOpenAI(base_url=mesh.edge_url + "/v1", api_key="none", max_retries=0, timeout=30) as client:

        async def ask(text: str) -> tuple[dict[str, str], str]:
            messages = [{"role": "user", "content": text}]
            raw = await client.chat.completions.with_raw_response.create(
                model="simulated", messages=messages, extra_headers=headers
            )
            answer = raw.parse()
            return dict(raw.headers), answer.choices[0].message.content or ""

        told, kept = await ask(QUESTION)
        assert told["x-streamway-cache"] == "miss"
        assert "x-streamway-cache-entry" not in told
        for _ in range(100):
            told, text = await ask(QUESTION)
            if told["x-streamway-cache"] == "exact":
                break
            await asyncio.sleep(0.05)
        assert (text, told["x-streamway-cache-similarity"]) == (kept, "1.0000")
        entry = told["x-streamway-cache-entry"]
        for paraphrase in PARAPHRASES:
            told, text = await ask(paraphrase)
            if told["x-streamway-cache"] == "semantic":
                break
        assert told["x-streamway-cache"] == "semantic"
        assert (text, told["x-streamway-cache-entry"]) == (kept, entry)
        assert 0.95 <= float(told["x-streamway-cache-similarity"]) < 1
        assert "x-streamway-worker" not in told
        messages = [{"role": "user", "content": paraphrase}]
        stream = await client.chat.completions.create(
            model="simulated",
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers=headers,
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == kept
    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 1, "its borders are kept"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens_details is not None
