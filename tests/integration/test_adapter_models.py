"""One adapter in front of an engine that lists two models, as vLLM does with a LoRA."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.settings import AdapterSettings
from streamway.config import SharedSettings
from streamway.valkey import keys
from tests.support.adapter_world import WORKER, attached, enqueue, request, text
from tests.support.serving import served
from tests.support.valkey_server import ValkeyServer


async def _list(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "base"}, {"id": "base-lora"}]})


async def _chat(asked: web.Request) -> web.StreamResponse:
    """Answers with the name of the model it was asked for."""
    body = await asked.json()
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(asked)
    for choice in ({"delta": {"content": body["model"]}}, {"delta": {}, "finish_reason": "stop"}):
        chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    async with served(web.get("/v1/models", _list), web.post("/v1/chat/completions", _chat)) as url:
        yield url


async def test_each_task_of_a_lane_runs_with_its_own_model_and_each_is_reported(
    valkey: Redis, valkey_server: ValkeyServer, engine: str
) -> None:
    backend = make_backend(BackendOptions(kind="openai_http", url=engine, slots=4), WORKER)
    settings = AdapterSettings(worker=WORKER, port=0, operations_port=0)
    adapter = Adapter(settings, SharedSettings(valkey_url=valkey_server.url), backend)
    await adapter.start()
    try:
        async with attached(adapter) as stream:
            for model in ("base", "base-lora", "base"):
                body = json.dumps({"model": "alias", "messages": [{"role": "user", "content": "x"}]}).encode()
                for wanted in (request(model=model), request(model=model, openai_body=body)):
                    events = await stream.all(await stream.subscribe(await enqueue(valkey, wanted)))
                    assert text(events) == model
        await adapter._registration.tell()
        rows = json.loads(await valkey.hget(keys.lease("worker", WORKER), "models") or b"")
        assert [row["name"] for row in rows] == ["base", "base-lora"]
        assert all(row["first_token_ms"] > 0 for row in rows)
        for model in ("base", "base-lora"):
            groups = await valkey.xinfo_groups(keys.pool(model, keys.CLASSES[0]))
            assert [group["name"] for group in groups] == [b"workers"], "it reads the pools of both"
    finally:
        await adapter.close()
