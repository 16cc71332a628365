"""Routers with journaling workers, and readers of what they make."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from services.router.app import RouterApp
from services.router.settings import RouterSettings
from streamway.config import SharedSettings
from streamway.rpc import open_channel
from streamway.v1 import common_pb2
from tests.support.journaling_worker import JournalingWorker
from tests.support.router_mesh import Mesh


@asynccontextmanager
async def takeover_mesh(
    url: str,
    *,
    workers: int = 2,
    routers: int = 1,
    tokens: int = 20,
    pace_s: float = 0.02,
    shared: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[list[Mesh], list[JournalingWorker]]]:
    """`workers` named w0, w1 … and `routers` named r0, r1 …"""
    common = SharedSettings(valkey_url=url, **(shared or {}))
    async with AsyncExitStack() as stack:
        made = []
        for number in range(workers):
            worker = JournalingWorker(url, f"w{number}", common, tokens=tokens, pace_s=pace_s)
            await worker.start()
            stack.push_async_callback(_stop, worker)
            made.append(worker)
        meshes = []
        for number in range(routers):
            patient = {"cache_budget_ms": 1000, "session_recall_ms": 100, "dispatch_timeout_s": 20}
            given = {"reattach_s": 0.3, "poll_s": 0.1, **patient, **settings}
            app = RouterApp(RouterSettings(port=0, id=f"r{number}", **given), common)
            await app.start()
            stack.push_async_callback(app.close)
            channel = open_channel(app.address, common)
            stack.push_async_callback(channel.close)
            meshes.append(Mesh(app, list(made), channel, common))
        yield meshes, made


async def _stop(worker: JournalingWorker) -> None:
    if not worker.dead:
        await worker.stop()


def text_of(events: list[common_pb2.Event]) -> str:
    """What a reader shows."""
    return "".join(event.token.text for event in events if event.HasField("token"))


def ranges_of(events: list[common_pb2.Event]) -> list[int]:
    """Every position that is covered, in the order it came."""
    covered: list[int] = []
    for event in events:
        if event.position:
            covered += range(event.first_position or event.position, event.position + 1)
    return covered
