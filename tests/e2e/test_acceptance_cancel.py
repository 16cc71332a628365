"""`docs/acceptance.md` A: whoever leaves frees the engine, from any surface and in any phase."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
import pytest

from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc, router_pb2, router_pb2_grpc
from tests.e2e.conftest import GRACE_S
from tests.support.clients import RawRequest, chat_body, frames
from tests.support.mesh import EngineServer, MeshProcesses

# The engine's rate for one stream; what may still be made after the cut is half a second of it.
RATE = 100
PATH = "/v1/chat/completions"


def grpc_request(prompt: str, **fields: object) -> router_pb2.GenerateRequest:
    request = common_pb2.GenerationRequest(
        model="simulated", messages=[common_pb2.Message(role="user", content=prompt)], **fields
    )
    return router_pb2.GenerateRequest(request=request)


async def assert_freed(engine: EngineServer, made_before: float, grace_s: float = 0.0) -> None:
    """No work half a second after the grace, and no more than that time's worth of tokens after the cut."""
    most_s = grace_s + 0.5 + 0.25
    await engine.idle_within(most_s)
    made = await engine.metric("simulated:tokens_total") - made_before
    assert made <= most_s * RATE


@pytest.mark.alone
async def test_a1_cutting_an_sse_stream_frees_the_engine(engine: EngineServer, engine_mesh: MeshProcesses) -> None:
    request = await RawRequest.post(engine_mesh.edge_url + PATH, chat_body("a1 sse", max_tokens=2000, stream=True))
    assert await request.head() == 200
    seen = 0
    async for _ in request.events():
        seen += 1
        if seen == 50:
            break
    made = await engine.metric("simulated:tokens_total")
    request.cut()
    await assert_freed(engine, made)


@pytest.mark.alone
async def test_a1_cutting_a_websocket_frees_the_engine(engine: EngineServer, engine_mesh: MeshProcesses) -> None:
    async with frames(engine_mesh.websocket_url) as client:
        await client.open("a", "a1 websocket", params={"max_tokens": 2000})
        for _ in range(50):
            await client.receive()
        made = await engine.metric("simulated:tokens_total")
        client.socket.transport.abort()
        await assert_freed(engine, made, GRACE_S)


@pytest.mark.alone
async def test_a1_a_long_poll_that_is_cut_and_not_repeated_frees_the_engine(
    engine: EngineServer, engine_mesh: MeshProcesses
) -> None:
    where, generation = await background(engine_mesh, "a1 poll", max_tokens=2000)
    after, tokens = "0-0", 0
    while tokens < 50:
        poll = await RawRequest.get(f"{where}?after={after}&wait=10")
        assert await poll.head() == 200
        answer = json.loads(await poll.body())
        after = answer["cursor"]
        tokens += sum(event["type"] == "token" for event in answer["events"])
    # One that waits for what comes later than it will live.
    poll = await RawRequest.get(f"{where}?after={after.split('-')[0]}-{10**6}&wait=30")
    made = await engine.metric("simulated:tokens_total")
    poll.cut()
    await assert_freed(engine, made, GRACE_S)
    assert generation


@pytest.mark.alone
async def test_a1_breaking_a_grpc_call_frees_the_engine(engine: EngineServer, engine_mesh: MeshProcesses) -> None:
    async with grpc.aio.insecure_channel(engine_mesh.address("router-0")) as channel:
        call = router_pb2_grpc.RouterServiceStub(channel).Generate(
            grpc_request("a1 grpc", limits=common_pb2.Limits(max_tokens=2000))
        )
        tokens = 0
        async for response in call:
            tokens += sum(event.HasField("token") for event in response.events)
            if tokens >= 50:
                break
        made = await engine.metric("simulated:tokens_total")
        call.cancel()
        await assert_freed(engine, made, GRACE_S)


@pytest.mark.alone
async def test_a1_closing_a_connect_stream_cancels_what_it_relays(
    engine: EngineServer, engine_mesh: MeshProcesses
) -> None:
    async with grpc.aio.insecure_channel(engine_mesh.address("router-0")) as channel:
        call = router_pb2_grpc.RouterServiceStub(channel).Connect()
        request = grpc_request("a1 connect", limits=common_pb2.Limits(max_tokens=2000)).request
        request.generation = new_generation_id()
        opening = router_pb2.ConnectCommand(open=router_pb2.Open(request=request))
        await call.write(router_pb2.ConnectRequest(commands=[opening]))
        tokens = 0
        while tokens < 50:
            response = await call.read()
            tokens += sum(event.HasField("token") for event in response.events)
        made = await engine.metric("simulated:tokens_total")
        call.cancel()
        await assert_freed(engine, made, GRACE_S)


async def background(mesh: MeshProcesses, prompt: str, **params: Any) -> tuple[str, str]:
    """Begins a generation that is read by polls; where its events are, and its id."""
    asked = {"model": "simulated", "messages": [{"role": "user", "content": prompt}], "params": params}
    request = await RawRequest.post(f"{mesh.edge_url}/v1/generations", asked)
    assert await request.head() == 202
    told = json.loads(await request.body())
    return mesh.edge_url + told["events_url"], told["generation"]


@pytest.mark.parametrize("surface", ["sse", "whole", "responses", "websocket", "grpc"])
async def test_a2_who_leaves_the_queue_never_reaches_the_engine(
    surface: str, engine: EngineServer, engine_mesh: MeshProcesses
) -> None:
    holders = [
        await RawRequest.post(
            engine_mesh.edge_url + PATH, chat_body(f"a2 {surface} holder {number}", max_tokens=2000, stream=True)
        )
        for number in range(4)
    ]
    async with asyncio.timeout(20):
        while await engine.running() < 4:
            await asyncio.sleep(0.02)
    started = await engine.metric("simulated:requests_total")
    async with AsyncExitStack() as closing:
        leave = await asks(surface, engine_mesh, f"a2 {surface} queued", closing)
        await queued(engine_mesh, 1)
        leave()
        # A WebSocket and a gRPC call have their grace; the others are gone at once.
        await queued(engine_mesh, 0)
    for holder in holders:
        holder.cut()
    await engine.idle_within(20)
    await asyncio.sleep(0.3)
    assert await engine.metric("simulated:requests_total") == started


async def queued(mesh: MeshProcesses, number: int) -> None:
    """Waits until so many tasks wait in the worker's window."""
    async with grpc.aio.insecure_channel(mesh.address("adapter-0")) as channel, asyncio.timeout(20):
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        while (await stub.GetLoad(inference_pb2.GetLoadRequest())).queued != number:
            await asyncio.sleep(0.02)


async def asks(surface: str, mesh: MeshProcesses, prompt: str, closing: AsyncExitStack) -> Callable[[], object]:
    """Asks on a surface; the result is how that client leaves."""
    if surface == "websocket":
        client = await closing.enter_async_context(frames(mesh.websocket_url))
        await client.open("a", prompt, params={"max_tokens": 10})
        return client.socket.transport.abort
    if surface == "grpc":
        channel = await closing.enter_async_context(grpc.aio.insecure_channel(mesh.address("router-0")))
        call = router_pb2_grpc.RouterServiceStub(channel).Generate(
            grpc_request(prompt, limits=common_pb2.Limits(max_tokens=10))
        )
        await call.read()
        return call.cancel  # type: ignore[no-any-return]
    if surface == "responses":
        body: dict[str, Any] = {"model": "simulated", "input": prompt, "max_output_tokens": 10, "stream": True}
        return (await RawRequest.post(f"{mesh.edge_url}/v1/responses", body)).cut
    body = chat_body(prompt, max_tokens=10, stream=surface == "sse")
    return (await RawRequest.post(mesh.edge_url + PATH, body)).cut


@pytest.mark.parametrize("durability", ["relaxed", "strict"])
async def test_a2_a_task_that_leaves_the_queue_never_reaches_the_engine(
    durability: str, engine: EngineServer, engine_mesh: MeshProcesses
) -> None:
    running = []
    for number in range(4):
        request = await RawRequest.post(
            engine_mesh.edge_url + PATH, chat_body(f"a2 holder {number}", max_tokens=2000, stream=True)
        )
        assert await request.head() == 200
        running.append(request)
    while await engine.running() < 4:
        await asyncio.sleep(0.02)
    started = await engine.metric("simulated:requests_total")
    leaving = await RawRequest.post(
        engine_mesh.edge_url + PATH,
        chat_body("a2 queued", max_tokens=10, stream=True),
        {"x-streamway-durability": durability},
    )
    await queued(engine_mesh, 1)
    leaving.cut()
    await queued(engine_mesh, 0)
    for request in running:
        request.cut()
    await engine.idle_within(20)
    await asyncio.sleep(0.5)
    assert await engine.metric("simulated:requests_total") == started


@pytest.mark.alone
async def test_a2_leaving_in_prefill_aborts_the_engine_call(engine: EngineServer, engine_mesh: MeshProcesses) -> None:
    slow = {"first_token_delay_s": 20}
    request = await RawRequest.post(
        engine_mesh.edge_url + PATH, chat_body("a2 prefill", max_tokens=10, stream=True, streamway_faults=slow)
    )
    while not await engine.running():
        await asyncio.sleep(0.02)
    request.cut()
    await engine.idle_within(0.75)


@pytest.mark.alone
async def test_a3_leaving_a_plain_call_aborts_the_engine_call(engine: EngineServer, engine_mesh: MeshProcesses) -> None:
    request = await RawRequest.post(engine_mesh.edge_url + PATH, chat_body("a3", max_tokens=2000))
    while not await engine.running():
        await asyncio.sleep(0.02)
    made = await engine.metric("simulated:tokens_total")
    request.cut()
    await assert_freed(engine, made)


@pytest.mark.alone
async def test_a4_an_explicit_cancel_stops_at_once(engine: EngineServer, engine_mesh: MeshProcesses) -> None:
    async with frames(engine_mesh.websocket_url) as client:
        await client.open("a", "a4", params={"max_tokens": 2000})
        await client.until("token")
        made = await engine.metric("simulated:tokens_total")
        await client.send(type="cancel", id="a")
        seen = await client.until("error", "a")
        assert seen[-1]["reason"] == "cancelled"
        assert seen[-1]["delivered_until"] >= 3
        await assert_freed(engine, made)


@pytest.mark.alone
async def test_a4_the_unary_cancel_works_from_another_connection(
    engine: EngineServer, engine_mesh: MeshProcesses
) -> None:
    async with grpc.aio.insecure_channel(engine_mesh.address("router-0")) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        request = grpc_request("a4 unary", limits=common_pb2.Limits(max_tokens=2000))
        request.request.generation = new_generation_id()
        call = stub.Generate(request)
        await call.read()
        while not await engine.running():
            await asyncio.sleep(0.02)
        await stub.Cancel(router_pb2.CancelRequest(generation=request.request.generation))
        await engine.idle_within(0.75)
        errors = 0
        while (response := await call.read()) is not grpc.aio.EOF:
            errors += sum(event.HasField("error") for event in response.events)
        assert errors == 1


@pytest.mark.parametrize("surface", ["sse", "websocket"])
async def test_a2_a_cancel_that_overtakes_its_task_still_counts(
    surface: str, engine: EngineServer, engine_mesh: MeshProcesses
) -> None:
    """Open and leave in the same breath: whatever the order on the inside, nothing goes on running."""
    for number in range(10):
        if surface == "sse":
            request = await RawRequest.post(
                engine_mesh.edge_url + PATH, chat_body(f"overtake {number}", max_tokens=2000, stream=True)
            )
            await request.writer.drain()
            request.cut()
        else:
            async with frames(engine_mesh.websocket_url) as client:
                await client.open("a", f"overtake {number}", params={"max_tokens": 2000})
                await client.send(type="cancel", id="a")
                await client.until("error", "a")
    await asyncio.sleep(0.5)
    await engine.idle_within(20)


@pytest.mark.alone
async def test_c4_a_half_closed_client_is_a_gone_client(engine: EngineServer, engine_mesh: MeshProcesses) -> None:
    request = await RawRequest.post(engine_mesh.edge_url + PATH, chat_body("c4", max_tokens=2000, stream=True))
    assert await request.head() == 200
    async for _ in request.events():
        break
    request.writer.write_eof()
    started = time.monotonic()
    await engine.idle_within(2.0)
    assert time.monotonic() - started < 2.0
    assert json.dumps(request.headers)
