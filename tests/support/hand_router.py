"""A real gRPC RouterService that a test steers: a router without admission, cache or lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from streamway.config import SharedSettings
from streamway.errors import GenerationNotFound, StreamwayError, to_status
from streamway.rpc import MeshServer, MountedService
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc


class HandRouter(router_pb2_grpc.RouterServiceServicer):
    """Answers each open with what `answer` returns; None is silence. Remembers what it was asked.

    By default a generation is sent to the worker at `source`.
    """

    def __init__(self, source: str = "", worker: str = "hand") -> None:
        self.source = source
        self.worker = worker
        self.opened: list[common_pb2.GenerationRequest] = []
        self.deliveries: list[int] = []
        self.failed_leaders: list[str] = []
        self.cancelled: list[str] = []
        self.streams = 0
        self.models = [router_pb2.Model(name="simulated", workers=1, slots=4, context_tokens=4096)]
        self.metadata: list[dict[str, Any]] = []
        # What GetGeneration, locate and Cancel know: by generation, the tenant and where it is.
        self.known: dict[str, router_pb2.GetGenerationResponse] = {}
        self.tenants: dict[str, str] = {}
        self.located: list[router_pb2.GetGenerationRequest] = []
        # Calls of GetGeneration, and messages on Connect.
        self.calls = 0
        self.messages = 0
        self.answer: Callable[[common_pb2.GenerationRequest], list[common_pb2.Event] | None] = self.locate
        self._outboxes: list[asyncio.Queue[router_pb2.ConnectResponse | None]] = []
        self._news = asyncio.Event()

    def locate(self, request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
        """`accepted`, and the worker has the rest."""
        return [accepted(request, self.worker, self.source)]

    def say(self, *events: common_pb2.Event) -> None:
        """Sends events on every stream."""
        for outbox in self._outboxes:
            outbox.put_nowait(router_pb2.ConnectResponse(events=events))

    def break_streams(self) -> None:
        """Ends every Connect stream; the server stays."""
        for outbox in self._outboxes:
            outbox.put_nowait(None)

    async def asked(self, number: int = 1, within_s: float = 20.0) -> common_pb2.GenerationRequest:
        """The `number`-th request that was opened, counted from 1; waits for it."""
        await self.until(lambda: len(self.opened) >= number, within_s)
        return self.opened[number - 1]

    async def until(self, true: Callable[[], bool], within_s: float = 20.0) -> None:
        """Waits until something that this router is told makes `true` hold."""
        async with asyncio.timeout(within_s):
            while not true():
                self._news.clear()
                await self._news.wait()

    async def Connect(
        self, requests: AsyncIterator[router_pb2.ConnectRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[router_pb2.ConnectResponse]:
        self.streams += 1
        self.metadata.append(dict(context.invocation_metadata() or ()))
        outbox: asyncio.Queue[router_pb2.ConnectResponse | None] = asyncio.Queue()
        self._outboxes.append(outbox)
        self._news.set()

        async def listen() -> None:
            async for request in requests:
                self.messages += 1
                for command in request.commands:
                    if command.HasField("locate"):
                        tasks.append(asyncio.get_running_loop().create_task(answer(command.locate)))
                    else:
                        self._obey(command, outbox)

        async def answer(question: router_pb2.Locate) -> None:
            located = router_pb2.Located(number=question.number)
            try:
                located.found.CopyFrom(await self._find(question.request))
            except StreamwayError as refused:
                located.refused.CopyFrom(to_status(refused))
            outbox.put_nowait(router_pb2.ConnectResponse(located=[located]))

        tasks = [asyncio.get_running_loop().create_task(listen())]
        try:
            while (batch := await outbox.get()) is not None:
                yield batch
        finally:
            for task in tasks:
                task.cancel()
            self._outboxes.remove(outbox)

    async def ListModels(
        self, request: router_pb2.ListModelsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.ListModelsResponse:
        return router_pb2.ListModelsResponse(models=self.models)

    async def GetGeneration(
        self, request: router_pb2.GetGenerationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.GetGenerationResponse:
        self.calls += 1
        return await self._find(request)

    async def _find(self, request: router_pb2.GetGenerationRequest) -> router_pb2.GetGenerationResponse:
        self.located.append(request)
        self._news.set()
        until = asyncio.get_running_loop().time() + request.wait_ms / 1000
        while True:
            known = self.known.get(request.generation)
            if known is None or self.tenants.get(request.generation) != request.tenant:
                raise GenerationNotFound(request.generation)
            if known.epoch > request.above_epoch or asyncio.get_running_loop().time() >= until:
                return known
            # Hundreds may wait here.
            await asyncio.sleep(0.05)

    async def Cancel(
        self, request: router_pb2.CancelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.CancelResponse:
        known = self.known.get(request.generation)
        if known is None or self.tenants.get(request.generation) != request.tenant:
            raise GenerationNotFound(request.generation)
        self.cancelled.append(request.generation)
        self._news.set()
        return router_pb2.CancelResponse(state=known.state)

    def _obey(
        self, command: router_pb2.ConnectCommand, outbox: asyncio.Queue[router_pb2.ConnectResponse | None]
    ) -> None:
        if command.HasField("open"):
            self.opened.append(command.open.request)
            self.deliveries.append(command.open.delivery)
            self.failed_leaders.append(command.open.failed_leader)
            events = self.answer(command.open.request)
            if events:
                outbox.put_nowait(router_pb2.ConnectResponse(events=events))
        else:
            self.cancelled.append(command.cancel.generation)
        self._news.set()


class RouterServer:
    """The servicer on a real server."""

    def __init__(self, router: HandRouter, shared: SharedSettings, port: int = 0) -> None:
        mounted = MountedService(
            "streamway.v1.RouterService", router, router_pb2_grpc.add_RouterServiceServicer_to_server
        )
        self._server = MeshServer("127.0.0.1", port, shared, [mounted])

    @property
    def address(self) -> str:
        return self._server.address

    async def start(self) -> str:
        await self._server.start()
        await self._server.serving(True)
        return self.address

    async def stop(self) -> None:
        await self._server.stop(0)


def accepted(request: common_pb2.GenerationRequest, worker: str, source: str, **fields: Any) -> common_pb2.Event:
    said = common_pb2.Accepted(
        worker=worker,
        source=source,
        cursor="0-1",
        model=request.model,
        session=request.session,
        **{"cache": "miss", "route": "home", "reason": "first", "durability": common_pb2.DURABILITY_OFF, **fields},
    )
    return common_pb2.Event(generation=request.generation, position=1, accepted=said)


def refused(request: common_pb2.GenerationRequest, error: StreamwayError) -> common_pb2.Event:
    problem = common_pb2.Error(status=to_status(error))
    return common_pb2.Event(generation=request.generation, position=1, error=problem)
