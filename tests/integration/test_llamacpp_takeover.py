"""A real llama.cpp dies in the middle of an answer and another one goes on: whoever reads it sees one text."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from redis.asyncio import Redis

from scripts.install_model import model_path
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.interfaces import Backend
from streamway.v1 import common_pb2
from tests.support.adapter_world import assert_tile, attached, enqueue, kinds, request, text
from tests.support.engines import RecordingSink
from tests.support.two_workers import RELAXED, copy_for, kill, worker
from tests.support.valkey_server import ValkeyServer

MODEL = "smollm2-135m-instruct"
TOKENS = 48


def engine(kind: str) -> Backend:
    path = model_path()
    if path is None:
        pytest.skip("left out: the model is not installed; run `python scripts/install_model.py`")
    options = {"kind": kind, "model_path": path, "slots": 1, "context_tokens": 512, "threads": 1, "probe": False}
    return make_backend(BackendOptions.model_validate(options), "w")


def asked() -> common_pb2.GenerationRequest:
    body = {
        "messages": [{"role": "user", "content": "Count from one to thirty in words."}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    return request(model=MODEL, durability=RELAXED, openai_body=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("first_kind", "second_kind", "how"),
    [
        ("llamacpp", "llamacpp_inside", "engine"),
        ("llamacpp_inside", "llamacpp", "worker"),
    ],
)
async def test_d1_a_real_engine_goes_on_with_what_another_began(
    valkey: Redis, valkey_server: ValkeyServer, first_kind: str, second_kind: str, how: str
) -> None:
    """Killed is the engine's process, which its worker survives and gives its work away; or the worker, engine and all."""
    url, first_engine = valkey_server.url, engine(first_kind)
    async with worker(url, "a", first_engine) as first, worker(url, "b", engine(second_kind)) as second:
        async with attached(second) as stream:
            calm = await enqueue(valkey, asked(), worker="b")
            whole = await stream.all(await stream.subscribe(calm), within_s=60)
        generation = await enqueue(valkey, asked(), worker="a")
        async with attached(first) as stream, attached(second) as heir:
            number = await stream.subscribe(generation, after=1)
            before = list(await stream.until(number, 8, within_s=60))
            if how == "engine":
                os.kill(first_engine.info().pid, signal.SIGKILL)
                before = (await stream.all(number, within_s=60))[:-1]
            else:
                await kill(first, valkey, "a")
                await copy_for(valkey, generation, "b")
            at = before[-1]
            number = await heir.subscribe(generation, after=at.position, after_epoch=at.epoch)
            after = await heir.all(number, within_s=60)
        told = before + after
        assert_tile(told)
        assert kinds(told).count("taken_over") == 1
        # One text, and not the answer begun anew. Whether it is the very text of a calm engine depends on where it was cut.
        assert text(told).startswith(text(before))
        assert text(after) != text(whole)[: len(text(after))]
        usage = told[-1].finished.usage
        assert usage.completion_tokens == TOKENS
        assert abs(usage.prompt_tokens - whole[-1].finished.usage.prompt_tokens) <= 8


async def test_the_seam_of_a_continued_answer_is_text_whose_tokens_are_the_models_own() -> None:
    """The prompt of a continuation ends with exactly the text, and the engine makes of it the tokens that it had made."""
    backend = engine("llamacpp_inside")
    try:
        await backend.start()
        asks = OpenAIHTTPBackend(BackendOptions(kind="openai_http", url=backend.info().address), "w")

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            status, answer = await asks.post(path, json.dumps(body).encode(), 60)
            assert status == 200, answer
            found: dict[str, Any] = json.loads(answer)
            return found

        async def ids_of(words: str) -> list[int]:
            ids: list[int] = (await post("/tokenize", {"content": words, "add_special": False}))["tokens"]
            return ids

        for question, told_each in (("Count from one to thirty in words.", True), ("请用中文介绍一下长江。", False)):
            messages = [{"role": "user", "content": question}]
            body = {"messages": messages, "max_tokens": 24, "temperature": 0, "logprobs": True}
            sink = RecordingSink()
            backend.call(common_pb2.GenerationRequest(model=MODEL, openai_body=json.dumps(body).encode()), sink)
            await sink.wait()
            ids = await ids_of(sink.text())
            if told_each:
                # Not of a character that takes several tokens: only the last one's is told.
                said = [json.loads(piece.raw_delta)["logprobs"]["content"] for piece in sink.pieces if piece.raw_delta]
                assert ids == [entry["id"] for content in said for entry in content]
            so_far = ""
            for piece in sink.pieces[:-1]:
                so_far += piece.text
                partial = [*messages, {"role": "assistant", "content": so_far}]
                assert (await post("/apply-template", {"messages": partial}))["prompt"].endswith("assistant\n" + so_far)
                assert await ids_of(so_far) == ids[: len(await ids_of(so_far))]
        await asks.close()
    finally:
        await backend.close()
