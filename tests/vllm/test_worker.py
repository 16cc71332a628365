"""Workers in front of real vLLMs: one dies and another goes on, KV runs short, sessions find their KV again."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.interfaces import Backend
from services.router.app import RouterApp
from services.router.settings import RouterSettings
from streamway.config import SharedSettings
from streamway.rpc import mesh_metadata, open_channel
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc
from streamway.valkey import keys
from tests.support.adapter_world import assert_tile, attached, enqueue, eventually, kinds, request, text
from tests.support.two_workers import RELAXED, copy_for, kill, worker
from tests.support.valkey_server import ValkeyServer
from tests.support.vllm_server import MODEL, SLOTS, VllmServer, VllmServers

TOKENS = 200


def engine(server: VllmServer) -> Backend:
    return make_backend(BackendOptions(kind="openai_http", url=server.url, slots=SLOTS, probe=False), "w")


def asked(prompt: str = "Count from one to thirty in words.", **body: Any) -> common_pb2.GenerationRequest:
    made = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **body,
    }
    return request(model=MODEL, durability=RELAXED, openai_body=json.dumps(made).encode())


@pytest.mark.parametrize("how", ["worker", "engine"])
async def test_d1_a_real_vllm_goes_on_with_what_another_began(
    vllm_servers: VllmServers, valkey: Redis, valkey_server: ValkeyServer, how: str
) -> None:
    """Killed is the worker; or its vLLM, which the worker survives and gives its work away."""
    servers = [await vllm_servers.get(kind) for kind in ("vllm-unix", "vllm-tcp")]
    engines = [engine(server) for server in servers]
    url = valkey_server.url
    async with worker(url, "a", engines[0]) as first, worker(url, "b", engines[1]) as second:
        async with attached(second) as stream:
            calm = await enqueue(valkey, asked(), worker="b")
            whole = await stream.all(await stream.subscribe(calm), within_s=120)
        generation = await enqueue(valkey, asked(), worker="a")
        async with attached(first) as stream, attached(second) as heir:
            number = await stream.subscribe(generation, after=1)
            before = list(await stream.until(number, 8, within_s=120))
            if how == "engine":
                servers[0].kill()
                before = (await stream.all(number, within_s=60))[:-1]
            else:
                await kill(first, valkey, "a")
                await copy_for(valkey, generation, "b")
                await eventually(lambda: _running(servers[0]), 0)
            at = before[-1]
            number = await heir.subscribe(generation, after=at.position, after_epoch=at.epoch)
            after = await heir.all(number, within_s=120)
        told = before + after
        assert_tile(told)
        assert kinds(told).count("taken_over") == 1
        assert kinds(told)[-1] == "finished"
        # One text, and not the answer begun anew.
        assert text(after)
        assert text(whole).startswith(text(before))
        assert text(after) != text(whole)[: len(text(after))]
        usage = told[-1].finished.usage
        assert usage.completion_tokens == TOKENS
        # A text is split into tokens otherwise than it was made, the more so where it means nothing.
        assert abs(usage.prompt_tokens - whole[-1].finished.usage.prompt_tokens) <= TOKENS


async def _running(server: VllmServer) -> int:
    return int(await server.metric("vllm:num_requests_running"))


async def test_kv_that_runs_short_is_reported_and_holds_new_work_back(
    vllm_servers: VllmServers, valkey: Redis, valkey_server: ValkeyServer
) -> None:
    """Twelve blocks of KV: answers that grow fill them, vLLM puts some aside, and the worker begins no other."""
    server = await vllm_servers.get("vllm-unix")
    settings = {
        "engine_check_s": 0.1,
        "kv_mark": 0.7,
        "kv_release": 0.4,
        "kv_mark_s": 0.1,
        "lease_s": 1.0,
        # What vLLM puts aside, and what waits behind it, is silent for as long as the machine takes.
        "token_gap_s": 0,
        "first_token_timeout_s": 0,
    }
    put_aside = await server.metric("vllm:num_preemptions_total")

    async def said() -> bytes | None:
        return await valkey.hget(keys.lease("worker", "a"), "kv_full")

    async with worker(valkey_server.url, "a", engine(server), **settings) as made, attached(made) as stream:
        growing = [
            await stream.subscribe(await enqueue(valkey, asked(f"{n}", max_tokens=700), worker="a"), after=1)
            for n in range(4)
        ]
        await eventually(said, b"1", 120)
        assert made._monitor.load.kv_used is not None
        assert made._monitor.load.kv_used >= 0.4
        held = await stream.subscribe(await enqueue(valkey, asked("held", max_tokens=2), worker="a"), after=1)
        await eventually(lambda: made.window.waiting, 1, 30)
        assert not stream.events[held]
        for number in growing:
            events = await stream.all(number, within_s=240)
            assert kinds(events)[-1] == "finished", events[-1]
            assert events[-1].finished.usage.completion_tokens == 700
        assert kinds(await stream.all(held, within_s=60))[-1] == "finished"
        await eventually(said, b"0", 30)
    assert await server.metric("vllm:num_preemptions_total") > put_aside


SESSIONS = 4
TURNS = 4


@asynccontextmanager
async def routed(url: str, servers: list[VllmServer], strategy: str) -> AsyncIterator[tuple[Any, Any]]:
    """A router in front of a worker for each server: its stub and the metadata of the mesh."""
    shared = SharedSettings(valkey_url=url)
    async with AsyncExitStack() as stack:
        for number, server in enumerate(servers):
            await stack.enter_async_context(worker(url, f"w{number}", engine(server)))
        patient: dict[str, Any] = {"cache_budget_ms": 1000, "session_recall_ms": 100, "dispatch_timeout_s": 20}
        app = RouterApp(RouterSettings(port=0, id="r", strategy=strategy, poll_s=0.05, **patient), shared)
        await app.start()
        stack.push_async_callback(app.close)
        channel = open_channel(app.address, shared)
        stack.push_async_callback(channel.close)
        yield router_pb2_grpc.RouterServiceStub(channel), mesh_metadata(shared)


class Conversation:
    """Turns of one session, and how many prompt tokens after the first turn were found in KV."""

    def __init__(self, stub: Any, metadata: Any, name: str, number: int) -> None:
        self._stub, self._metadata = stub, metadata
        # A tenant of its own has a salt of its own: nothing of an earlier run is found.
        self._session, self._tenant = f"{name}-{number}", f"{name}-{secrets.token_hex(4)}"
        self._messages = [{"role": "user", "content": f"{name} {number}. " + "The river carries light. " * 36}]
        self.prompt = self.cached = 0

    async def turn(self, number: int, placed: asyncio.Event) -> None:
        """One question and its answer; `placed` once a worker has it."""
        body = {"model": MODEL, "messages": self._messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        wanted = common_pb2.GenerationRequest(
            model=MODEL, session=self._session, tenant=self._tenant, openai_body=json.dumps(body).encode()
        )
        answer = ""
        async for said in self._stub.Generate(router_pb2.GenerateRequest(request=wanted), metadata=self._metadata):
            placed.set()
            for event in said.events:
                assert not event.HasField("error"), event
                answer += event.token.text
                if event.HasField("finished") and number:
                    self.prompt += event.finished.usage.prompt_tokens
                    self.cached += event.finished.usage.cached_prompt_tokens
        more = [{"role": "assistant", "content": answer}, {"role": "user", "content": f"and {number}?"}]
        self._messages += more


async def talk(stub: Any, metadata: Any, name: str) -> tuple[int, int]:
    """All conversations, a turn of each side by side, in another order each time, as people come back."""
    draw = random.Random(5)
    sessions = [Conversation(stub, metadata, name, number) for number in range(SESSIONS)]
    for number in range(TURNS):
        draw.shuffle(sessions)
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                placed = asyncio.Event()
                group.create_task(session.turn(number, placed))
                await placed.wait()
    return sum(one.prompt for one in sessions), sum(one.cached for one in sessions)


async def test_sessions_that_return_to_their_worker_find_their_kv(
    vllm_servers: VllmServers, valkey: Redis, valkey_server: ValkeyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = [await vllm_servers.get(kind) for kind in ("vllm-tcp", "vllm-unix")]
    hits = {}
    for strategy in ("least_loaded", "ring"):
        await valkey.flushdb()
        async with routed(valkey_server.url, servers, strategy) as (stub, metadata):
            prompt, cached = await talk(stub, metadata, strategy)
        hits[strategy] = cached / prompt
        with capsys.disabled():
            sys.stdout.write(
                f"\n  prefix hits, {strategy}: {cached} of {prompt} prompt tokens ({hits[strategy]:.0%})\n"
            )
    assert hits["ring"] > 0.5
    assert hits["ring"] > hits["least_loaded"]
