"""A router in this process with workers written by hand: real gRPC, real Valkey, no engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc.aio
from opentelemetry.sdk.trace import TracerProvider
from redis.asyncio import Redis

from services.router.app import RouterApp
from services.router.settings import RouterSettings
from streamway.config import SharedSettings
from streamway.lanes import LaneReader, TakenTask, own_lanes
from streamway.rpc import mesh_metadata, open_channel
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_generation_id
from streamway.tenancy import TierName
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc
from streamway.valkey import keys
from streamway.valkey.leases import Lease
from tests.support.inference_service import HandServer, HandWorker


async def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Waits for a condition; fails after `limit_s`."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


def ask(text: str = "hello", *, model: str = "m", **fields: Any) -> common_pb2.GenerationRequest:
    """A valid request."""
    return common_pb2.GenerationRequest(
        generation=fields.pop("generation", new_generation_id()),
        model=model,
        messages=[common_pb2.Message(role="user", content=text)],
        **fields,
    )


class Worker:
    """A HandWorker with a lease and a lane. Nobody renews the lease: it lasts for a whole test."""

    def __init__(
        self, valkey: Redis, blocking: Redis, id_: str, shared: SharedSettings, *, lease_s: float = 120.0, **fields: str
    ) -> None:
        self.id = id_
        self.hand = HandWorker()
        self.fields = {
            "models": json.dumps([{"name": "m", "context_tokens": 4096}]),
            "slots": "4",
            "running": "0",
            "queued": "0",
            "window_free": "8",
            "load_tokens": "0",
            "kv_used": "",
            "draining": "0",
            "engine": "hand",
            "healthy": "1",
            **fields,
        }
        self.server = HandServer(self.hand, shared)
        self.lease = Lease(valkey, SystemClock(), "worker", id_, self._fields, lease_s=lease_s)
        self.lane = LaneReader(valkey, blocking, id_, own_lanes(id_))

    async def start(self) -> None:
        await self.server.start()
        await self.lane.open()
        await self.lease.renew()

    async def stop(self) -> None:
        await self.server.stop()

    async def take(self, most: int = 100) -> list[TakenTask]:
        return await self.lane.take(dict.fromkeys(keys.CLASSES, most))

    def _fields(self) -> dict[str, str]:
        now = str(int(time.time() * 1000))
        return {"address": self.server.address, "reported_ms": now, **self.fields}


class Mesh:
    """One router and its workers."""

    def __init__(
        self, app: RouterApp, workers: list[Worker], channel: grpc.aio.Channel, shared: SharedSettings
    ) -> None:
        self.app = app
        self.shared = shared
        self.workers = workers
        self.stub: Any = router_pb2_grpc.RouterServiceStub(channel)
        self.metadata = mesh_metadata(shared)

    def connect(self) -> ConnectStream:
        return ConnectStream(self.stub.Connect(metadata=self.metadata))

    async def renew(self) -> None:
        for worker in self.workers:
            await worker.lease.renew()

    def judged(self, worker: str, model: str = "m", tier: TierName = TierName.GOLD) -> tuple[int, int]:
        """What a breaker has counted in its window: calls, failures."""
        window = self.app._made().books._breakers._breakers._of(worker, model)[tier]._window
        return window.calls, window.failures

    async def look(self) -> None:
        """Has the router read its workers anew."""
        await self.app._made().registry.refresh()


class ConnectStream:
    """A Connect call: what was sent, what came."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.events: list[common_pb2.Event] = []
        self.located: list[router_pb2.Located] = []
        self.messages = 0
        self.ended = False
        self.error: grpc.aio.AioRpcError | None = None
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def open(self, request: common_pb2.GenerationRequest, *, location: bool = True) -> str:
        delivery = router_pb2.Delivery.DELIVERY_LOCATION if location else router_pb2.Delivery.DELIVERY_EVENTS
        await self.send(router_pb2.ConnectCommand(open=router_pb2.Open(request=request, delivery=delivery)))
        return request.generation

    async def cancel(self, generation: str) -> None:
        await self.send(router_pb2.ConnectCommand(cancel=router_pb2.Cancel(generation=generation)))

    async def send(self, *commands: router_pb2.ConnectCommand) -> None:
        await self.call.write(router_pb2.ConnectRequest(commands=commands))

    def of(self, generation: str) -> list[common_pb2.Event]:
        return [event for event in self.events if event.generation == generation]

    def kinds(self, generation: str) -> list[str | None]:
        return [event.WhichOneof("event") for event in self.of(generation)]

    async def first(self, generation: str, limit_s: float = 20.0) -> common_pb2.Event:
        await until(lambda: bool(self.of(generation)), limit_s)
        return self.of(generation)[0]

    async def close(self) -> None:
        self.call.cancel()
        await asyncio.wait({self._task})

    async def _read(self) -> None:
        try:
            async for response in self.call:
                self.messages += 1
                self.events += response.events
                self.located += response.located
        except grpc.aio.AioRpcError as error:
            self.error = error
        finally:
            self.ended = True


@asynccontextmanager
async def mesh(
    valkey: Redis,
    url: str,
    *,
    workers: int = 1,
    shared: dict[str, Any] | None = None,
    worker_fields: dict[str, str] | None = None,
    workers_list: tuple[str, ...] = (),
    tracing: TracerProvider | None = None,
    **settings: Any,
) -> AsyncIterator[Mesh]:
    """Starts a router and `workers` hand-written workers named w0, w1 …"""
    common = SharedSettings(valkey_url=url, **(shared or {}))
    async with AsyncExitStack() as stack:
        made = []
        for number in range(workers):
            blocking = Redis.from_url(url, single_connection_client=True)
            stack.push_async_callback(blocking.aclose)
            worker = Worker(valkey, blocking, f"w{number}", common, **(worker_fields or {}))
            await worker.start()
            stack.push_async_callback(worker.stop)
            made.append(worker)
        # A busy machine may take longer than the moments that a router waits.
        settings = {"cache_budget_ms": 1000, "session_recall_ms": 100, "dispatch_timeout_s": 20, **settings}
        app = RouterApp(RouterSettings(port=0, workers=workers_list, **settings), common, tracing)
        await app.start()
        stack.push_async_callback(app.close)
        channel = open_channel(app.address, common)
        stack.push_async_callback(channel.close)
        yield Mesh(app, made, channel, common)
