"""A real gRPC InferenceService whose events a test writes by hand: a worker without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from streamway.config import SharedSettings
from streamway.errors import StreamwayError
from streamway.rpc import MeshServer, MountedService
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from streamway.v1.inference_pb2 import View


@dataclass
class _Reader:
    """One Attach stream: what it subscribed, what waits to be sent."""

    outbox: asyncio.Queue[list[common_pb2.Event] | None]
    subscriptions: dict[int, inference_pb2.Subscribe] = field(default_factory=dict)


class HandWorker(inference_pb2_grpc.InferenceServiceServicer):
    """Remembers every event of each generation and serves them to whoever subscribes, as a worker does."""

    def __init__(self, *, repeat: int = 0) -> None:
        self.events: dict[str, list[common_pb2.Event]] = {}
        self.cancelled: list[str] = []
        self.commands: list[inference_pb2.AttachCommand] = []
        self.messages = 0
        self.beats = True
        self.streams = 0
        self.metadata: list[dict[str, Any]] = []
        self._readers: list[_Reader] = []
        self._repeat = repeat

    async def Attach(
        self, requests: AsyncIterator[inference_pb2.AttachRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[inference_pb2.AttachResponse]:
        self.streams += 1
        self.metadata.append(dict(context.invocation_metadata() or ()))
        reader = _Reader(asyncio.Queue())
        self._readers.append(reader)

        async def listen() -> None:
            async for request in requests:
                self.messages += 1
                for command in request.commands:
                    self._obey(reader, command)

        task = asyncio.get_running_loop().create_task(listen())
        try:
            while (batch := await reader.outbox.get()) is not None:
                yield inference_pb2.AttachResponse(events=batch)
        finally:
            task.cancel()
            self._readers.remove(reader)

    async def GetLoad(
        self, request: inference_pb2.GetLoadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> inference_pb2.GetLoadResponse:
        engine = inference_pb2.Engine(kind="simulated", healthy=True)
        return inference_pb2.GetLoadResponse(worker="hand", models=["m"], slots=4, context_tokens=512, engine=engine)

    def push(self, generation: str, *events: common_pb2.Event) -> None:
        """Adds events of one generation, as one batch for each reader."""
        self.events.setdefault(generation, []).extend(events)
        for reader in self._readers:
            batch = [
                event
                for number, subscribe in reader.subscriptions.items()
                if subscribe.generation == generation
                for event in self._for(number, subscribe, list(events))
            ]
            if batch:
                reader.outbox.put_nowait(batch)

    def beat(self) -> None:
        """Sends a sign of life on every Attach stream, unless `beats` is off."""
        if not self.beats:
            return
        for reader in self._readers:
            reader.outbox.put_nowait([])

    def break_streams(self) -> None:
        """Ends every Attach stream; the server stays."""
        for reader in self._readers:
            reader.outbox.put_nowait(None)

    @property
    def subscribed(self) -> list[inference_pb2.Subscribe]:
        """Every subscription that was asked for, in order."""
        return [command.subscribe for command in self.commands if command.HasField("subscribe")]

    def _obey(self, reader: _Reader, command: inference_pb2.AttachCommand) -> None:
        self.commands.append(command)
        match command.WhichOneof("command"):
            case "subscribe":
                subscribe = command.subscribe
                reader.subscriptions[subscribe.subscription] = subscribe
                known = self.events.get(subscribe.generation, [])
                if batch := self._for(subscribe.subscription, subscribe, known):
                    reader.outbox.put_nowait(batch)
            case "unsubscribe":
                reader.subscriptions.pop(command.unsubscribe.subscription, None)
            case "cancel":
                self.cancelled.append(command.cancel.generation)

    def _for(
        self, number: int, subscribe: inference_pb2.Subscribe, events: list[common_pb2.Event]
    ) -> list[common_pb2.Event]:
        """What one subscription gets; with `repeat`, it also gets that many events it has already."""
        ended = bool(events) and events[-1].WhichOneof("event") in ("finished", "error")
        if subscribe.view == View.VIEW_OUTCOME:
            events = events[-1:] if ended else []
        elif subscribe.view == View.VIEW_COMPLETE:
            events = self.events[subscribe.generation] if ended else []
        after = max(0, subscribe.after - self._repeat)
        chosen = []
        for event in events:
            if event.position > after:
                copy = common_pb2.Event()
                copy.CopyFrom(event)
                copy.subscription = number
                chosen.append(copy)
        return chosen


class HandServer:
    """The servicer on a real server."""

    def __init__(self, worker: HandWorker, shared: SharedSettings, port: int = 0) -> None:
        self._server = MeshServer(
            "127.0.0.1",
            port,
            shared,
            [
                MountedService(
                    "streamway.v1.InferenceService", worker, inference_pb2_grpc.add_InferenceServiceServicer_to_server
                )
            ],
        )

    @property
    def address(self) -> str:
        return self._server.address

    async def start(self) -> str:
        await self._server.start()
        await self._server.serving(True)
        return self.address

    async def stop(self) -> None:
        await self._server.stop(0)


def started(position: int = 2, epoch: int = 1 << 20) -> common_pb2.Event:
    return common_pb2.Event(position=position, epoch=epoch, started=common_pb2.Started(worker="hand"))


def token(position: int, text: str, epoch: int = 1 << 20) -> common_pb2.Event:
    return common_pb2.Event(position=position, epoch=epoch, token=common_pb2.Token(text=text, units=1))


def finished(position: int, epoch: int = 1 << 20, **usage: int) -> common_pb2.Event:
    return common_pb2.Event(
        position=position,
        epoch=epoch,
        finished=common_pb2.Finished(finish_reason="stop", usage=common_pb2.Usage(**usage)),
    )


def failed(position: int, error: StreamwayError, epoch: int = 1 << 20) -> common_pb2.Event:
    from streamway.errors import to_status

    return common_pb2.Event(position=position, epoch=epoch, error=common_pb2.Error(status=to_status(error)))
