"""What the backend does with a real vLLM, beyond what every engine promises (tests/contract/test_backend.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.interfaces import Backend
from streamway.errors import EngineRejected
from streamway.journal import ChoiceSoFar
from streamway.models.abilities import Ability
from streamway.v1 import common_pb2
from tests.support.engines import RecordingSink
from tests.support.vllm_server import MODEL, SLOTS, VllmServer, VllmServers

# Longer than some blocks of 16 tokens.
LONG = "The river carries light over the stones. " * 12
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Bern", "Oslo"]}},
            "required": ["city"],
        },
    },
}


@pytest.fixture
async def server(vllm_servers: VllmServers) -> VllmServer:
    return await vllm_servers.get("vllm-tcp")


@pytest.fixture
async def backend(server: VllmServer) -> AsyncIterator[Backend]:
    made = make_backend(BackendOptions(kind="openai_http", url=server.url, slots=SLOTS, probe_timeout_s=120), "w-1")
    await made.start()
    yield made
    await made.close()


def asked(
    prompt: str = "Name three fruits.", *, tenant: str = "acme", priority: int = 0, **body: Any
) -> common_pb2.GenerationRequest:
    made = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **body}
    return common_pb2.GenerationRequest(
        generation="g-1", model=MODEL, tenant=tenant, priority=priority, openai_body=json.dumps(made).encode()
    )


async def run(backend: Backend, request: common_pb2.GenerationRequest) -> RecordingSink:
    sink = RecordingSink()
    backend.call(request, sink)
    return await sink.wait(120)


async def test_vllm_is_found_to_do_what_its_table_says(backend: Backend) -> None:
    known = backend.info().capabilities
    assert (known.profile, known.version.partition("+")[0]) == ("vllm", "0.32.0")
    tried = {
        Ability.CONTINUES,
        Ability.GRAMMAR,
        Ability.LOGPROBS,
        Ability.SEVERAL_CHOICES,
        Ability.TOKEN_IDS,
        Ability.PRIORITY,
        Ability.CACHED_TOKENS,
        Ability.TOOLS,
    }
    assert known.tried >= tried
    assert known.can >= tried | {Ability.CACHE_SALT, Ability.KV_USE}
    assert known.kv_block_tokens == 32
    assert known.kv_blocks > 1000
    assert backend.info().models[0].context_tokens == 1024


async def test_several_tokens_in_a_chunk_are_counted_by_their_ids_and_by_usage(backend: Backend) -> None:
    sink = await run(backend, asked(max_tokens=48, temperature=2, seed=3, ignore_eos=True, return_token_ids=True))
    ids = [len(piece.token_ids) for piece in sink.pieces]
    assert sink.usage is not None
    assert sum(ids) == sink.usage.completion_tokens == 48
    # Half a character waits for its other half: those tokens come together.
    assert max(ids) > 1
    assert len(sink.pieces) < 48


async def test_the_last_content_chunk_carries_the_finish_reason(backend: Backend) -> None:
    sink = await run(backend, asked(max_tokens=5, temperature=0, ignore_eos=True, return_token_ids=True))
    last = sink.pieces[-1]
    assert last.finish_reason == "length"
    assert last.token_ids, "it is a piece of the answer and not an empty one behind it"


async def test_a_tenants_kv_is_its_own(backend: Backend) -> None:
    async def cached(tenant: str) -> int:
        sink = await run(backend, asked(LONG, tenant=tenant, max_tokens=1))
        assert sink.usage is not None
        return sink.usage.cached_prompt_tokens

    assert await cached("apart-1") == 0
    assert await cached("apart-1") >= 96
    assert await cached("apart-2") == 0
    assert await cached("apart-2") >= 96


async def test_a_tenant_cannot_name_anothers_salt(backend: Backend) -> None:
    body = {"max_tokens": 1, "cache_salt": "mine"}
    for tenant, hit in (("salted-1", False), ("salted-1", True), ("salted-2", False)):
        sink = await run(backend, asked(LONG, tenant=tenant, **body))
        assert sink.usage is not None
        assert bool(sink.usage.cached_prompt_tokens) is hit, tenant


async def test_urgent_work_overtakes_in_vllms_own_queue(backend: Backend, server: VllmServer) -> None:
    """All its sequences are taken. What waits begins by priority, not by when it came."""
    order: list[str] = []
    fillers = [RecordingSink() for _ in range(SLOTS)]
    waiting = {"low": RecordingSink(), "high": RecordingSink()}
    for number, sink in enumerate(fillers):
        # Long enough for what follows on a busy machine, and short enough for the context.
        backend.call(asked(f"{number} {LONG}", priority=0, max_tokens=400 + 20 * number, ignore_eos=True), sink)
    for sink in fillers:
        await asyncio.wait_for(sink.first.wait(), 120)
    for name, priority in (("low", -50), ("high", -5)):
        waiting[name].on_piece = lambda _, name=name: order.append(name)  # type: ignore[misc]
        backend.call(asked(name, priority=priority, max_tokens=1, ignore_eos=True), waiting[name])
        async with asyncio.timeout(60):
            while await server.metric("vllm:num_requests_waiting") < len(waiting) - (name == "low"):
                assert not order, "a sequence was free: there was nothing to wait for"
    for sink in (*fillers, *waiting.values()):
        await sink.wait(120)
    assert order == ["high", "low"]


async def test_a_schema_is_kept(backend: Backend) -> None:
    schema = {"type": "object", "properties": {"fruit": {"enum": ["fig", "plum"]}}, "required": ["fruit"]}
    form = {"type": "json_schema", "json_schema": {"name": "one", "schema": {**schema, "additionalProperties": False}}}
    sink = await run(backend, asked(max_tokens=200, temperature=0, response_format=form))
    assert sink.finish_reasons() == {0: "stop"}
    assert json.loads(sink.text())["fruit"] in {"fig", "plum"}


async def test_a_schema_that_is_none_is_refused(backend: Backend) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "one", "schema": {"type": "no such type"}}}
    sink = await run(backend, asked(max_tokens=4, response_format=form))
    assert isinstance(sink.error, EngineRejected), sink.error
    assert sink.error.message


async def test_a_demanded_tool_is_called(backend: Backend) -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    sink = await run(backend, asked(max_tokens=200, temperature=0, tools=[TOOL], tool_choice=named))
    assert sink.error is None
    calls = [
        call
        for piece in sink.pieces
        if piece.raw_delta
        for call in json.loads(piece.raw_delta)["delta"].get("tool_calls") or []
    ]
    assert calls[0]["function"]["name"] == "weather"
    arguments = "".join(call["function"].get("arguments") or "" for call in calls)
    # This vLLM holds such arguments to JSON, not to the tool's own schema: with a model that means nothing it shows.
    json.loads(arguments)


async def test_a_tool_that_is_no_tool_is_refused(backend: Backend) -> None:
    sink = await run(backend, asked(max_tokens=4, tools=[{"type": "function"}], tool_choice="required"))
    assert isinstance(sink.error, EngineRejected), sink.error


async def test_a_cancel_brings_the_running_count_to_zero(backend: Backend, server: VllmServer) -> None:
    sinks = [RecordingSink() for _ in range(3)]
    calls = [backend.call(asked(f"{n}", max_tokens=900, ignore_eos=True), sink) for n, sink in enumerate(sinks)]
    for sink in sinks:
        await asyncio.wait_for(sink.first.wait(), 120)
    assert await server.metric("vllm:num_requests_running") == 3
    for call in calls:
        call.abort()
    async with asyncio.timeout(10):
        while await server.metric("vllm:num_requests_running"):
            await asyncio.sleep(0.02)


async def test_another_call_goes_on_behind_a_text_and_counts_the_whole_answer(backend: Backend) -> None:
    body = {"max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    whole = await run(backend, asked(**body))
    assert whole.usage is not None
    made = whole.pieces[: len(whole.pieces) // 2]
    so_far = ChoiceSoFar(
        text="".join(piece.text for piece in made),
        units=len(made),
        token_ids=[one for piece in made for one in piece.token_ids],
    )
    rest = RecordingSink()
    backend.call(asked(**body), rest, so_far)
    await rest.wait(120)
    assert rest.error is None
    assert rest.finish_reasons() == {0: "length"}
    assert rest.usage is not None
    assert rest.usage.completion_tokens == 40
    assert sum(len(piece.token_ids) for piece in rest.pieces) == 40 - len(so_far.token_ids)
    assert rest.text() != whole.text()[: len(rest.text())], "it does not begin anew"
