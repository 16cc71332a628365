"""An edge in this process between real sockets: hand-steered router and worker behind it, any client before it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from services.edge.app import Edge
from services.edge.settings import EdgeSettings
from streamway.config import SharedSettings
from streamway.v1 import common_pb2
from tests.support.hand_router import HandRouter, RouterServer
from tests.support.inference_service import HandServer, HandWorker, finished, started, token


class EdgeWorld:
    """The edge and what stands behind it."""

    def __init__(self, edge: Edge, router: HandRouter, worker: HandWorker) -> None:
        self.edge = edge
        self.router = router
        self.worker = worker
        self.router_server: RouterServer | None = None
        self.worker_server: HandServer | None = None

    @property
    def url(self) -> str:
        return f"http://{self.edge.address}"

    @property
    def websocket_url(self) -> str:
        return f"ws://{self.edge.address}/v1/stream"

    async def metric(self, name: str, **labels: str) -> float:
        """One sample of the edge's metrics; 0 when it is not there."""
        url = f"http://{self.edge.operations_address}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            lines = (await response.text()).splitlines()
        for line in lines:
            if (
                line.startswith(name)
                and line[len(name)] in " {"
                and all(f'{k}="{v}"' in line for k, v in labels.items())
            ):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def speak(self, generation: str, *texts: str, first: int = 3, finish: str | None = "stop") -> None:
        """The worker starts, says the texts, one token each, and ends unless `finish` is None."""
        events: list[common_pb2.Event] = [started()] if first == 3 else []
        for offset, text in enumerate(texts):
            events.append(token(first + offset, text))
        if finish is not None:
            events[-1].token.choice_finished.finish_reason = finish
            end = finished(first + len(texts), prompt_tokens=7, completion_tokens=len(texts), cached_prompt_tokens=2)
            end.finished.finish_reason = finish
            events.append(end)
        self.worker.push(generation, *events)


@asynccontextmanager
async def edge_world(
    shared: dict[str, Any] | None = None, routers: list[str] | None = None, **settings: Any
) -> AsyncIterator[EdgeWorld]:
    """Everything on free ports; `settings` are the edge's. Without a `valkey_url` in `shared` the edge has no store."""
    common = SharedSettings(**{"valkey_url": "unix:///nowhere/valkey.sock", **(shared or {})})
    router, worker = HandRouter(), HandWorker()
    worker_server, router_server = HandServer(worker, common), RouterServer(router, common)
    router.source = await worker_server.start()
    address = await router_server.start()
    edge = Edge(
        EdgeSettings(
            **{"port": 0, "operations_port": 0, "routers": routers or [address], "drain_serve_s": 0.1, **settings}
        ),
        common,
    )
    try:
        await edge.start()
        world = EdgeWorld(edge, router, worker)
        world.router_server, world.worker_server = router_server, worker_server
        if routers is None:
            await router.until(lambda: router.streams > 0)
        yield world
    finally:
        await edge.close()
        await router_server.stop()
        await worker_server.stop()


def chat(prompt: str = "hello", **fields: Any) -> dict[str, Any]:
    """A chat completion request for the model that the router lists."""
    return {"model": "simulated", "messages": [{"role": "user", "content": prompt}], **fields}


def sse(text: str) -> list[Any]:
    """The data of each server-sent event, parsed where it is JSON."""
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
