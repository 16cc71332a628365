"""Meshes that end-to-end tests share. A test that kills something starts its own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.support.browser import started_browser
from tests.support.clients import RawRequest
from tests.support.mesh import EngineServer, MeshProcesses

# How long the shared engine mesh lets a generation run on for a reader that may come back.
GRACE_S = 1.0
# Of a million tokens on the shared mesh.
PRICE = {"input": 1000, "output": 4000, "cached": 500}


@pytest.fixture(autouse=True)
async def close_raw_requests() -> AsyncIterator[None]:
    """No socket of a test outlives it."""
    yield
    for request in RawRequest.made:
        request.cut()
        with contextlib.suppress(OSError):
            await request.writer.wait_closed()
    RawRequest.made.clear()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of the tests that are marked with `in_browser`."""
    async with started_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """Two workers with the simulated engine inside, two edge processes on one port. The model has a price."""
    folder = tmp_path_factory.mktemp("mesh")
    config = folder / "streamway.yaml"
    config.write_text(json.dumps({"models": {"prices": {"simulated": PRICE}}}), encoding="utf-8")
    environment = {"STREAMWAY_CONFIG": str(config)}
    processes = MeshProcesses(folder, arguments=("--workers", "2", "--edges", "2"), environment=environment)
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineServer]:
    """The simulated engine as an HTTP server with four slots, 100 tokens/s a stream, slow prefill."""
    server = EngineServer("--tokens-per-s", "100", "--slots", "4")
    yield server
    server.close()


@pytest.fixture(scope="session")
def engine_mesh(engine: EngineServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """A mesh in front of that engine: one worker with four slots."""
    processes = MeshProcesses(
        tmp_path_factory.mktemp("engine-mesh"),
        engine=engine.url,
        environment={
            "STREAMWAY_ADAPTER_SLOTS": "4",
            "STREAMWAY_ADAPTER_PASS_STREAMWAY_FIELDS": "true",
            "STREAMWAY_ADAPTER_RESUME_GRACE_S": str(GRACE_S),
        },
    )
    yield processes
    processes.close()
