"""A worker in front of an engine that misbehaves over HTTP: what its reader is told, and that the next request is in order."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from benchmarks.simulated_engine import EngineServer
from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from streamway.errors import from_status
from streamway.simulation.settings import SimulationSettings
from streamway.v1 import common_pb2
from tests.support.adapter_world import attached, enqueue, eventually, kinds, reason, request, running_adapter, text
from tests.support.valkey_server import ValkeyServer

TOKENS = 12


@pytest.fixture
async def server() -> AsyncIterator[EngineServer]:
    made = EngineServer(SimulationSettings(slots=2, decode_base_ms=2.0))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def adapter(server: EngineServer, valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[Adapter]:
    options = BackendOptions(kind="openai_http", url=server.address, slots=2, pass_streamway_fields=True)
    settings: dict[str, Any] = {"retries": 0, "first_token_timeout_s": 2.0, "token_gap_s": 2.0}
    backend = make_backend(options, "adapter-t")
    async with running_adapter(valkey_server.url, backend, **settings) as made:
        yield made


async def told(adapter: Adapter, valkey: Redis, **faults: Any) -> list[common_pb2.Event]:
    """What the reader of one request hears of an engine with these faults."""
    body = {"max_tokens": TOKENS, "messages": [{"role": "user", "content": "hello"}], "streamway_faults": faults}
    async with attached(adapter) as stream:
        asked = request(model="simulated", openai_body=json.dumps(body).encode())
        return await stream.all(await stream.subscribe(await enqueue(valkey, asked)), within_s=30)


def tokens(events: list[common_pb2.Event]) -> int:
    """Tokens that were told: one event may have several."""
    return sum(
        event.position - (event.first_position or event.position) + 1 for event in events if event.HasField("token")
    )


@pytest.mark.parametrize(
    ("faults", "heard", "error", "words"),
    [
        ({"wire": {"mute": True}, "first_token_delay_s": 600}, 0, "first_token_timeout", ""),
        ({"first_token_delay_s": 600}, 0, "first_token_timeout", ""),
        ({"stall_at_token": 5, "stall_s": 600}, 4, "token_gap", ""),
        ({"garbage_at_token": 5}, 4, "engine_failed", "garbage"),
        ({"wire": {"half_event_at_token": 5}}, 4, "engine_failed", "in the middle"),
        ({"die_at_token": 5}, 4, "engine_failed", "connection broke"),
        ({"wire": {"error_document": "it is on fire"}}, 0, "engine_failed", "it is on fire"),
        ({"wire": {"error_at_token": 5}}, 4, "engine_failed", "told to fail"),
        ({"wire": {"tokens_after_finish": 3}}, TOKENS, "engine_failed", "after its finish reason"),
    ],
    ids=["mute", "hangs", "stalls", "garbage", "half", "dies", "document", "error", "talks on"],
)
async def test_an_engine_that_misbehaves_is_told_and_its_slot_is_free(
    adapter: Adapter, server: EngineServer, valkey: Redis, faults: dict[str, Any], heard: int, error: str, words: str
) -> None:
    events = await told(adapter, valkey, **faults)
    assert kinds(events)[-1] == "error"
    assert reason(events[-1]) == error
    assert words in from_status(events[-1].error.status).message
    assert tokens(events) == heard
    await eventually(lambda: (server.engine.running, adapter.window.running), (0, 0))
    # The next one has a whole answer: nothing of the broken one is left on a connection.
    whole = await told(adapter, valkey)
    assert kinds(whole)[-1] == "finished"
    assert tokens(whole) == TOKENS


@pytest.mark.parametrize("usage", ["negative", "words", "huge"])
async def test_a_usage_that_cannot_be_is_left_out_and_the_answer_stands(
    adapter: Adapter, valkey: Redis, usage: str
) -> None:
    events = await told(adapter, valkey, wire={"usage": usage})
    assert kinds(events)[-1] == "finished"
    assert tokens(events) == TOKENS
    assert not events[-1].finished.HasField("usage")


async def test_another_models_name_is_no_matter(adapter: Adapter, valkey: Redis) -> None:
    plain = await told(adapter, valkey)
    assert text(await told(adapter, valkey, wire={"model": "somebody-else"})) == text(plain) != ""
