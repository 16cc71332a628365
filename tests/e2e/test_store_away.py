"""A whole mesh whose Valkey is stopped: what a browser asks then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import frames, text_of
from tests.support.mesh import ENDS_SOON, MeshProcesses
from tests.support.valkey_server import ValkeyServer


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def lonely_mesh(store: ValkeyServer, tmp_path: Path) -> Iterator[MeshProcesses]:
    """A mesh on a Valkey that is not the supervisor's own, so that nobody starts it again."""
    processes = MeshProcesses(
        tmp_path / "mesh",
        arguments=("--valkey", store.url),
        environment={**ENDS_SOON, "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S": "100"},
    )
    yield processes
    processes.close()


async def test_without_valkey_the_console_starts_answers_and_a_retry_attaches(
    store: ValkeyServer, lonely_mesh: MeshProcesses
) -> None:
    """`streamway.js` gives each question a key; the second `open` is what it sends when it has heard nothing."""
    async with frames(lonely_mesh.websocket_url) as socket, frames(lonely_mesh.websocket_url) as again:
        await socket.open("before", "hello", idempotency_key="key-0")
        await socket.until("finished", "before")
        store.stop()
        for number in (1, 2):
            await socket.open(f"q{number}", f"question {number}", idempotency_key=f"key-{number}")
        seen = await socket.until("finished", "q1")
        if not any(frame.get("id") == "q2" and frame["type"] == "finished" for frame in seen):
            seen += await socket.until("finished", "q2")
        told = {frame["id"]: frame for frame in seen if frame["type"] == "accepted"}
        assert {told[name]["durability"] for name in ("q1", "q2")} == {"off"}
        assert text_of(seen, "q1")
        assert text_of(seen, "q2")
        await again.open("r1", "question 1", idempotency_key="key-1")
        repeated = await again.until("finished", "r1")
        accepted = next(frame for frame in repeated if frame["type"] == "accepted")
        assert accepted["attached_to"] == told["q1"]["generation"]
        assert text_of(repeated, "r1") == text_of(seen, "q1")
