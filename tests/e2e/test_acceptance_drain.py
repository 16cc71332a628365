"""`docs/acceptance.md` L and K2: rolling restarts fail nothing; processes start and stop again and again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import openai
import pytest

from tests.support.clients import frames
from tests.support.mesh import MeshProcesses


@pytest.fixture(scope="module")
def small_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """One process of each kind. Whoever ends one waits for the next."""
    processes = MeshProcesses(tmp_path_factory.mktemp("drain"))
    yield processes
    processes.close()


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    """Each request has a connection of its own, which none before it has left behind."""
    async with httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0)) as client:
        yield client


async def ask(http: httpx2.AsyncClient, mesh: MeshProcesses, number: int, failures: list[str]) -> None:
    """One streamed answer through the official SDK; what goes wrong is noted."""
    client = openai.AsyncOpenAI(
        base_url=mesh.edge_url + "/v1", api_key="none", max_retries=0, timeout=40, http_client=http
    )
    try:
        stream = await client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": f"l1 {number}"}],
            max_tokens=40,
            stream=True,
        )
        finish = [choice.finish_reason async for chunk in stream for choice in chunk.choices if choice.finish_reason]
        if finish != ["length"]:
            failures.append(f"{number}: finish {finish}")
    except openai.OpenAIError as problem:
        failures.append(f"{number}: {type(problem).__name__} {problem}")


@pytest.mark.timeout(180)
async def test_l1_a_rolling_restart_of_everything_fails_no_request(http: httpx2.AsyncClient, tmp_path: Path) -> None:
    mesh = MeshProcesses(tmp_path, arguments=("--workers", "2", "--edges", "2"))
    failures: list[str] = []
    running = True
    number = 0
    try:
        async with asyncio.TaskGroup() as group:

            async def load() -> None:
                # So many at a time that something runs at each moment, and no more than a slow machine keeps up with.
                nonlocal number
                while running:
                    number += 1
                    await ask(http, mesh, number, failures)
                    await asyncio.sleep(0.3)

            for _ in range(6):
                group.create_task(load())
            for name in ("router-0", "adapter-0", "adapter-1", "edge-0", "edge-1", "cache-0"):
                await asyncio.sleep(1)
                old = mesh.kill(name, signal.SIGTERM)
                await mesh.restarted(name, old, 60)
            await asyncio.sleep(1)
            running = False
        assert number > 50
        assert failures == []
    finally:
        mesh.close()


async def test_l1_who_connects_while_the_only_edge_is_down_waits_for_the_next_one(
    http: httpx2.AsyncClient, small_mesh: MeshProcesses
) -> None:
    mesh = small_mesh
    failures: list[str] = []
    old = mesh.kill("edge-0")
    while Path(f"/proc/{old}").exists():
        await asyncio.sleep(0.01)
    await ask(http, mesh, 1, failures)
    assert failures == []
    await mesh.restarted("edge-0", old, 60)


async def test_l1_a_draining_edge_says_so_and_lets_streams_finish(small_mesh: MeshProcesses) -> None:
    mesh = small_mesh
    async with frames(mesh.websocket_url) as client:
        await client.open("x", "l1 drain", params={"max_tokens": 150})
        await client.until("token", "x")
        old = mesh.kill("edge-0", signal.SIGTERM)
        seen = await client.until("going_away")
        await client.open("y", "l1 too late", params={"max_tokens": 5})
        seen += await client.until("finished", "x")
        refused = [frame for frame in seen if frame["type"] == "error"]
        assert [frame["reason"] for frame in refused] == ["going_away"]
        assert seen[-1]["usage"]["completion_tokens"] == 150
        await asyncio.wait_for(client.socket.wait_closed(), 10)
        assert client.socket.close_code == 1001
    await mesh.restarted("edge-0", old, 60)


@pytest.mark.timeout(300)
async def test_k2_meshes_start_and_stop_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As people start them.
    monkeypatch.setattr(MeshProcesses, "forks", None)
    for turn in range(10 if os.environ.get("FULL") == "1" else 2):
        mesh = MeshProcesses(tmp_path / str(turn), arguments=("--edges", "2"))
        pids = [mesh.pid_of(name) for name in mesh.names()]
        started = time.monotonic()
        assert mesh.close() == 0
        assert time.monotonic() - started < 20
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def test_without_a_channel_a_killed_worker_ends_its_streams_with_a_clear_error(small_mesh: MeshProcesses) -> None:
    mesh = small_mesh
    async with frames(mesh.websocket_url) as client:
        await client.open("x", "killed", params={"max_tokens": 3000}, durability="off")
        await client.until("token", "x")
        old = mesh.kill("adapter-0")
        seen = await client.until("error", "x", 30)
        assert seen[-1]["reason"] == "worker_lost"
        assert seen[-1]["delivered_until"] >= 3
        assert seen[-1]["retryable"] is True
        await mesh.restarted("adapter-0", old)
        await asyncio.sleep(1.5)
        await client.open("y", "after", params={"max_tokens": 5})
        await client.until("finished", "y", 20)


async def test_killing_the_router_stalls_no_running_stream(small_mesh: MeshProcesses) -> None:
    mesh = small_mesh
    async with frames(mesh.websocket_url) as client:
        await client.open("x", "router killed", params={"max_tokens": 300})
        await client.until("token", "x")
        old = mesh.kill("router-0")
        seen = await client.until("finished", "x")
        assert seen[-1]["usage"]["completion_tokens"] == 300
        await mesh.restarted("router-0", old)
        await client.open("y", "router back", params={"max_tokens": 5})
        await client.until("finished", "y", 20)
