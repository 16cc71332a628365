"""A router whose own loop stands still blames nobody else, and still finds who is silent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from services.router.io.probe import Probe
from streamway.errors import from_status
from streamway.v1 import common_pb2
from tests.support.router_mesh import ask, mesh
from tests.support.valkey_server import ValkeyServer


@asynccontextmanager
async def _busy(block_s: float) -> AsyncIterator[None]:
    """This loop, which is the router's too, stands still again and again."""

    async def stand() -> None:
        while True:
            time.sleep(block_s)
            await asyncio.sleep(0.001)

    task = asyncio.ensure_future(stand())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_busy_router_takes_neither_store_nor_workers_for_silent_and_finds_those_that_are(
    tmp_path: Path,
) -> None:
    server = ValkeyServer(tmp_path)
    client = Redis.from_url(server.url)
    try:
        async with mesh(client, server.url, dispatch_timeout_s=0.5, poll_s=0.2) as made:
            stream, probe = made.connect(), Probe(made.shared)
            await stream.first(await stream.open(ask("before")))
            async with _busy(0.7):
                strict = await stream.open(ask("meanwhile", durability=common_pb2.DURABILITY_STRICT))
                relaxed = await stream.open(ask("meanwhile"))
                for generation, durability in (
                    (strict, common_pb2.DURABILITY_STRICT),
                    (relaxed, common_pb2.DURABILITY_RELAXED),
                ):
                    event = await stream.first(generation, 60)
                    assert event.accepted.durability == durability, event
            async with _busy(1.2):
                assert await probe.answers(made.workers[0].server.address)
            assert made.app._made().registry.reachable("w0") is not None

            # The other half: those that really say nothing.
            with socket.create_server(("127.0.0.1", 0)) as silent:
                began = time.monotonic()
                assert not await probe.answers(f"127.0.0.1:{silent.getsockname()[1]}")
                assert time.monotonic() - began < 10
            os.kill(server.pid, signal.SIGSTOP)
            try:
                refused = await stream.first(await stream.open(ask("c", durability=common_pb2.DURABILITY_STRICT)))
                assert from_status(refused.error.status).name == "store_unavailable"
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await stream.close()
    finally:
        await client.aclose()
        server.stop()
