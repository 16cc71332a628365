"""`docs/acceptance.md` C, F, I, K: idle connections, memory, tasks, sizes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest
import websockets

from benchmarks.accounting import cpu_seconds, memory_bytes
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc, router_pb2, router_pb2_grpc
from tests.support.clients import RawRequest, chat_body, frames, text_of
from tests.support.mesh import ENDS_SOON, MeshProcesses

PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def large_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """Its engine has room for millions of tokens, and prefill is made fast, since its time is not the question. Whoever does not
    read is soon given up."""
    environment = {
        **ENDS_SOON,
        "STREAMWAY_ADAPTER_RESUME_GRACE_S": "3",
        "STREAMWAY_EDGE_SLOW_CLIENT_S": "3",
        "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S": "200",
        "STREAMWAY_ADAPTER_SIMULATION__CONTEXT_TOKENS": "16000000",
        "STREAMWAY_ADAPTER_SIMULATION__KV_TOKENS": "16000000",
        "STREAMWAY_ADAPTER_SIMULATION__PREFILL_TOKENS_PER_S": "100000000",
        "STREAMWAY_ADAPTER_SIMULATION__PREFILL_CHUNK_TOKENS": "16000000",
    }
    processes = MeshProcesses(tmp_path_factory.mktemp("large"), environment=environment)
    yield processes
    processes.close()


@pytest.mark.alone
async def test_c1_heartbeats_bridge_a_long_silence(tmp_path: Path) -> None:
    """Scaled: every answer begins after 5 s, heartbeats each second; no gap reaches twice the heartbeat."""
    environment = {
        **ENDS_SOON,
        "STREAMWAY_EDGE_HEARTBEAT_S": "1",
        "STREAMWAY_ADAPTER_SIMULATION__FAULTS__FIRST_TOKEN_DELAY_S": "5",
    }
    mesh = MeshProcesses(tmp_path, environment=environment)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(comments_bridge_it(mesh))
            group.create_task(frames_bridge_it(mesh))
    finally:
        mesh.close()


async def comments_bridge_it(mesh: MeshProcesses) -> None:
    request = await RawRequest.post(mesh.edge_url + PATH, chat_body("c1", max_tokens=3, stream=True))
    assert await request.head() == 200
    last, widest, comments = time.monotonic(), 0.0, 0
    async for chunk in request.chunks():
        widest = max(widest, time.monotonic() - last)
        last = time.monotonic()
        comments += chunk.startswith(b":")
        if b"[DONE]" in chunk:
            break
    assert widest < 2.0
    assert comments >= 3


async def frames_bridge_it(mesh: MeshProcesses) -> None:
    async with frames(mesh.websocket_url) as client:
        await client.open("x", "c1 websocket", params={"max_tokens": 3})
        beats = 0
        while (frame := await client.receive(2.5))["type"] != "finished":
            beats += frame["type"] == "heartbeat"
        assert beats >= 3


@pytest.mark.parametrize("sockets", [500])
async def test_f1_idle_websockets_are_small_and_leave_nothing(large_mesh: MeshProcesses, sockets: int) -> None:
    """Scaled to 500 sockets: at most 48 KB each over all processes; most of it back after they close."""
    pids = [large_mesh.pid_of(name) for name in large_mesh.names()]

    async def hold(stack: contextlib.AsyncExitStack, count: int) -> None:
        for _ in range(count):
            connecting = websockets.connect(
                large_mesh.websocket_url, subprotocols=[websockets.Subprotocol("streamway.v1.json")], compression=None
            )
            socket = await stack.enter_async_context(connecting)
            assert json.loads(await socket.recv())["type"] == "hello"

    async with contextlib.AsyncExitStack() as stack:
        await hold(stack, 50)  # warms every code path and allocator once
    await asyncio.sleep(0.5)
    before = sum(map(memory_bytes, pids))
    async with contextlib.AsyncExitStack() as stack:
        await hold(stack, sockets)
        held = sum(map(memory_bytes, pids))
    assert (held - before) / sockets <= 48 * 1024
    await asyncio.sleep(1.0)
    after = sum(map(memory_bytes, pids))
    assert after <= before * 1.10


async def test_f3_a_client_that_does_not_read_is_dropped_and_others_go_on(large_mesh: MeshProcesses) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", int(large_mesh.edge_url.rsplit(":", 1)[1]), limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    writer.write(
        f"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: streamway.v1.json\r\n\r\n".encode()
    )
    for number in range(100):
        opening = {
            "type": "open",
            "id": str(number),
            "model": "simulated",
            "messages": [{"role": "user", "content": f"f3 {number}"}],
            "params": {"max_tokens": 20_000},
        }
        payload = json.dumps(opening).encode()
        writer.write(bytes((0x81, 0x80 | 126)) + len(payload).to_bytes(2, "big") + bytes(4) + payload)
    await writer.drain()
    edge = large_mesh.pid_of("edge-0")
    before = memory_bytes(edge)
    dropped = await counter(large_mesh, "edge-0", "streamway_edge_slow_consumers_total")
    paused = await counter(large_mesh, "edge-0", "streamway_edge_pauses_total")
    async with grpc.aio.insecure_channel(large_mesh.address("adapter-0")) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        async def running() -> int:
            return (await stub.GetLoad(inference_pb2.GetLoadRequest())).running

        until = time.monotonic() + 20
        while await running() < 100:
            assert time.monotonic() < until, "the slow client's generations should all run"
            await asyncio.sleep(0.05)
        async with frames(large_mesh.websocket_url) as client:
            for turn in range(5):
                await client.open(f"ok{turn}", f"f3 other {turn}", params={"max_tokens": 20})
                await client.until("finished", f"ok{turn}", 20)
        until = time.monotonic() + 60
        while await counter(large_mesh, "edge-0", "streamway_edge_slow_consumers_total") == dropped:
            assert time.monotonic() < until, "the slow client was not dropped"
            assert memory_bytes(edge) - before < 32 * 1024 * 1024
            await asyncio.sleep(0.25)
        assert await counter(large_mesh, "edge-0", "streamway_edge_pauses_total") > paused
        until = time.monotonic() + 20
        while await running():
            assert time.monotonic() < until, "nobody reads, and the grace is over"
            await asyncio.sleep(0.1)
    writer.transport.abort()


async def counter(mesh: MeshProcesses, name: str, metric: str) -> float:
    """The sum of one metric of a process over its labels."""
    lines = (await mesh.metrics(name)).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric))


async def test_k1_a_prompt_of_12_mb_passes_every_hop(large_mesh: MeshProcesses) -> None:
    """An engine with a context of millions of tokens takes it; prefill is made fast, since its time is not the question."""
    body = chat_body("k1 " + "river " * 2_000_000, max_tokens=3, stream=True)
    request = await RawRequest.post(large_mesh.edge_url + PATH, body)
    assert await asyncio.wait_for(request.head(), 60) == 200, await request.body()
    data = [event async for event in request.events()]
    assert data[-1] == "[DONE]"
    assert all("error" not in json.loads(event) for event in data[:-1])


async def test_k1_a_body_over_the_limit_is_refused_with_the_limit(mesh: MeshProcesses) -> None:
    limit = 32 * 1024 * 1024
    request = await RawRequest.post(mesh.edge_url + PATH, b'{"model":"simulated","x":"' + b"a" * limit + b'"}')
    assert await request.head() == 413
    error = json.loads(await request.body())["error"]
    assert str(limit) in error["message"]
    async with grpc.aio.insecure_channel(
        mesh.address("router-0"), options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        huge = common_pb2.Message(role="user", content="a" * (limit + 1))
        call = router_pb2_grpc.RouterServiceStub(channel).Generate(
            router_pb2.GenerateRequest(request=common_pb2.GenerationRequest(model="simulated", messages=[huge]))
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.alone
async def test_an_idle_mesh_costs_next_to_nothing(mesh: MeshProcesses) -> None:
    """No polling loop of ours runs hot: all processes together stay under a tenth of a core."""
    pids = [mesh.pid_of(name) for name in mesh.names()]
    before = sum(map(cpu_seconds, pids))
    await asyncio.sleep(3)
    assert (sum(map(cpu_seconds, pids)) - before) / 3 < 0.15


async def test_many_generations_on_one_websocket_do_not_mix(mesh: MeshProcesses) -> None:
    async with frames(mesh.websocket_url) as client:
        ids = [f"g{number}" for number in range(40)]
        for id_ in ids:
            await client.open(id_, f"mix {id_}", params={"max_tokens": 30, "seed": 3})
        seen, finished = [], set()
        while len(finished) < len(ids):
            frame = await client.receive()
            seen.append(frame)
            if frame["type"] == "finished":
                finished.add(frame["id"])
            assert frame["type"] != "error", frame
        texts = {id_: text_of(seen, id_) for id_ in ids}
    async with frames(mesh.websocket_url) as client:
        for id_ in ids[:5]:
            await client.open(id_, f"mix {id_}", params={"max_tokens": 30, "seed": 3}, cache="off")
            assert text_of(await client.until("finished", id_)) == texts[id_]
