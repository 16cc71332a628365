"""Meshes that end-to-end tests share. A test that kills something starts its own.

They end with the last test of this folder: a mesh that nobody asks anything still takes a tenth of a core from those that run
beside it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from streamway.auth import hash_key
from tests.support.browser import started_browser
from tests.support.clients import RawRequest
from tests.support.mesh import ENDS_SOON, EngineServer, MeshProcesses

# How long the shared engine mesh lets a generation run on for a reader that may come back.
GRACE_S = 1.0
# Of a million tokens on the shared mesh.
PRICE = {"input": 1000, "output": 4000, "cached": 500}
# Whose answers the shared cache mesh keeps apart. Each belongs to one test, or to the tests of one file; `key_of` gives its key.
CACHE_TENANTS = ("acme", "bolt", "crow", "kettle", "loud", "owner", "page", "stranger")
# The feedback that a tenant may give there in a minute.
MOST_FEEDBACK = 4
# What its services tell each other, and a test that speaks to one of them.
CACHE_MESH_TOKEN = "token of the cache mesh"


def key_of(tenant: str) -> str:
    """The key of one of CACHE_TENANTS."""
    return f"key of {tenant}"


@pytest.fixture(autouse=True)
async def close_raw_requests() -> AsyncIterator[None]:
    """No socket of a test outlives it."""
    yield
    for request in RawRequest.made:
        request.cut()
        with contextlib.suppress(OSError):
            await request.writer.wait_closed()
    RawRequest.made.clear()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of the tests that are marked with `in_browser`."""
    async with started_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """Two workers with the simulated engine inside, two edge processes on one port. The model has a price."""
    folder = tmp_path_factory.mktemp("mesh")
    config = folder / "streamway.yaml"
    config.write_text(json.dumps({"models": {"prices": {"simulated": PRICE}}}), encoding="utf-8")
    environment = {**ENDS_SOON, "STREAMWAY_CONFIG": str(config)}
    processes = MeshProcesses(folder, arguments=("--workers", "2", "--edges", "2"), environment=environment)
    yield processes
    processes.close()


@pytest.fixture(scope="package")
def engine() -> Iterator[EngineServer]:
    """The simulated engine as an HTTP server with four slots, 100 tokens/s a stream, slow prefill."""
    server = EngineServer("--tokens-per-s", "100", "--slots", "4")
    yield server
    server.close()


@pytest.fixture(scope="package")
def engine_mesh(engine: EngineServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """A mesh in front of that engine: one worker with four slots."""
    processes = MeshProcesses(
        tmp_path_factory.mktemp("engine-mesh"),
        engine=engine.url,
        environment={
            **ENDS_SOON,
            "STREAMWAY_ADAPTER_SLOTS": "4",
            "STREAMWAY_ADAPTER_PASS_STREAMWAY_FIELDS": "true",
            "STREAMWAY_ADAPTER_RESUME_GRACE_S": str(GRACE_S),
        },
    )
    yield processes
    processes.close()


@pytest.fixture(scope="package")
def cache_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """A mesh whose semantic level serves all that it finds: no draw sends a question to a worker."""
    folder = tmp_path_factory.mktemp("cache-mesh")
    keys = folder / "keys.yaml"
    rows = [{"hash": hash_key(key_of(tenant)), "tenant": tenant} for tenant in CACHE_TENANTS]
    keys.write_text(json.dumps({"keys": rows}), encoding="utf-8")
    environment = {
        **ENDS_SOON,
        "STREAMWAY_API_KEYS_FILE": str(keys),
        "STREAMWAY_MESH_TOKEN": CACHE_MESH_TOKEN,
        "STREAMWAY_ROUTER_FEEDBACK_PER_MINUTE": str(MOST_FEEDBACK),
        "STREAMWAY_CACHE_SEMANTIC_THRESHOLD": "0.9",
        "STREAMWAY_CACHE_SEMANTIC_AUDIT_SHARE": "0",
        "STREAMWAY_CACHE_SEMANTIC_COMPARE_SHARE": "0",
        # What is looked at is not how long a busy machine takes to look something up and to encode it.
        "STREAMWAY_CACHE_ENCODER_TIMEOUT_S": "10",
        "STREAMWAY_ROUTER_CACHE_BUDGET_MS": "1000",
        "STREAMWAY_ROUTER_CACHE_SEMANTIC_BUDGET_MS": "1000",
    }
    processes = MeshProcesses(folder / "mesh", environment=environment)
    yield processes
    processes.close()
