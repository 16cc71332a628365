"""`token_path = relay`: the router in a worker's place, for edges that can't reach the workers.

Each live subscription is a `GenerationReader`: a worker that is lost or replaced is followed here, and the edge sees one
unbroken stream from one address. Books are kept elsewhere, so the other views are asked of the worker as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc.aio
import structlog

from services.router.core.events import TERMINAL
from services.router.io.locating import Locator
from services.router.io.outbox import Outbox
from services.router.io.registry import Registry
from streamway.attach import AttachPool
from streamway.errors import EventsExpired, InvalidArgument, NoWorkers, StreamwayError, TooManyGenerations, to_status
from streamway.following import GenerationReader, Place, ReaderPorts
from streamway.journal import Cursor
from streamway.rpc import caller
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from streamway.v1.inference_pb2 import View

_log = structlog.get_logger("router")
_MOST_COMMANDS: Final = 1000


class RelayServicer(inference_pb2_grpc.InferenceServiceServicer):
    """InferenceService at a router. `scope` outlives every call."""

    def __init__(
        self,
        locator: Locator,
        registry: Registry,
        ports: ReaderPorts,
        scope: TaskScope,
        name: str,
        *,
        outbox_limit_bytes: int,
        gather_s: float,
        heartbeat_s: float,
        most_subscriptions: int,
    ) -> None:
        self._locator = locator
        self._registry = registry
        self._ports = ports
        self._scope = scope
        self._name = name
        self._outbox_limit_bytes = outbox_limit_bytes
        self._gather_s = gather_s
        self._heartbeat_s = heartbeat_s
        self._most_subscriptions = most_subscriptions

    async def Attach(  # noqa: N802 — gRPC's name
        self,
        request_iterator: AsyncIterator[inference_pb2.AttachRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[inference_pb2.AttachResponse]:
        """As a worker's; see the proto."""
        identity = caller()
        outbox = Outbox(self._outbox_limit_bytes, self._gather_s)
        tenant = None if identity.mesh else identity.tenant
        stream = RelayStream(self._locator, self._ports, self._scope, outbox, tenant, self._most_subscriptions)
        listener = self._scope.spawn(_listen(stream, request_iterator), "relay-listen")
        try:
            while (batch := await outbox.take(self._heartbeat_s)) is not None:
                if batch or len(stream):
                    yield inference_pb2.AttachResponse(events=batch)
        finally:
            listener.cancel()
            stream.leave()

    async def Generate(  # noqa: N802
        self, request: inference_pb2.InferenceServiceGenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[inference_pb2.InferenceServiceGenerateResponse]:
        """A router has no engine of its own."""
        nothing: list[inference_pb2.InferenceServiceGenerateResponse] = []
        for response in nothing:  # gRPC wants an async generator
            yield response
        raise InvalidArgument("service", "this is a router: call streamway.v1.RouterService/Generate")

    async def GetLoad(  # noqa: N802
        self, request: inference_pb2.GetLoadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> inference_pb2.GetLoadResponse:
        """The workers behind it, as one."""
        workers = [worker for worker in self._registry.all() if worker.state == "ready"]
        return inference_pb2.GetLoadResponse(
            worker=self._name,
            models=sorted({served.name for worker in workers for served in worker.models}),
            slots=sum(worker.slots for worker in workers),
            limit=sum(worker.places for worker in workers),
            running=sum(min(worker.places, self._registry.tasks(worker)) for worker in workers),
            engine=inference_pb2.Engine(kind="relay", healthy=bool(workers)),
        )

    async def Reload(  # noqa: N802
        self, request: inference_pb2.ReloadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> inference_pb2.ReloadResponse:
        """A router has no engine of its own."""
        raise InvalidArgument("service", "this is a router: ask the workers, as `streamway reload` does")


class RelayStream:
    """One Attach stream of an edge. `tenant` None may read everything."""

    def __init__(
        self,
        locator: Locator,
        ports: ReaderPorts,
        scope: TaskScope,
        outbox: Outbox,
        tenant: str | None,
        most_subscriptions: int,
    ) -> None:
        self._locator = locator
        self._ports = ports
        self._scope = scope
        self._outbox = outbox
        self._tenant = tenant
        self._most = most_subscriptions
        # None while it is being found out where the generation is.
        self._open: dict[int, GenerationReader | _Plain | None] = {}
        outbox.overflowed = self.leave

    def __len__(self) -> int:
        return len(self._open)

    def obey(self, command: inference_pb2.AttachCommand) -> None:
        """Does what a command says. Raises InvalidArgument or TooManyGenerations."""
        match command.WhichOneof("command"):
            case "subscribe":
                self._subscribe(command.subscribe)
            case "unsubscribe":
                reader = self._open.pop(command.unsubscribe.subscription, None)
                if reader is not None:
                    reader.close()
            case "cancel":
                self._scope.spawn(self._cancel(command.cancel.generation), "relay-cancel")
            case _:
                raise InvalidArgument("command", "must be subscribe, unsubscribe or cancel at a router")

    def leave(self) -> None:
        """The edge is gone: the workers hear that nobody reads any more, and begin the grace."""
        self._outbox.end()
        readers, self._open = self._open, {}
        for reader in readers.values():
            if reader is not None:
                reader.close()

    def end(self, error: StreamwayError) -> None:
        """The edge said something that makes no sense."""
        self._outbox.end(error)

    def put(self, number: int, event: common_pb2.Event, kind: str) -> None:
        """Passes an event on."""
        event.subscription = number
        event.generation = ""
        if kind in TERMINAL:
            self._open.pop(number, None)
        self._outbox.put((event,))

    def fail(self, number: int, error: StreamwayError, delivered_until: int) -> None:
        """Ends a subscription; such an event has no epoch, since it is not a part of the generation."""
        told = common_pb2.Error(status=to_status(error), delivered_until=delivered_until)
        self.put(number, common_pb2.Event(position=delivered_until + 1, error=told), "error")

    def _subscribe(self, wanted: inference_pb2.Subscribe) -> None:
        if wanted.subscription == 0 or wanted.subscription in self._open:
            raise InvalidArgument("subscribe.subscription", "must be 1 or more, and not in use")
        if len(self._open) >= self._most:
            raise TooManyGenerations("stream", self._most)
        self._open[wanted.subscription] = None
        self._scope.spawn(self._find(wanted), "relay-find")

    async def _find(self, wanted: inference_pb2.Subscribe) -> None:
        number, generation = wanted.subscription, wanted.generation
        try:
            known = await self._locator.known(generation, self._tenant)
        except StreamwayError as refused:
            if number in self._open:
                self.fail(number, refused, wanted.after)
            return
        if number not in self._open:
            return
        cursor = Cursor(wanted.after_epoch, wanted.after)
        reader: GenerationReader | _Plain
        if wanted.view in (View.VIEW_UNSPECIFIED, View.VIEW_LIVE):
            live = GenerationReader(
                self._ports, generation, known.tenant, _Relay(self, number), cursor=cursor, durable=known.durable
            )
            self._open[number] = reader = live
            if known.place is not None:
                live.attach(known.place)
            elif known.durable:
                live.go_on()
            else:
                self.fail(number, EventsExpired(generation), wanted.after)
        elif known.place is None:
            self.fail(number, EventsExpired(generation) if known.ended else NoWorkers(known.model), wanted.after)
        else:
            self._open[number] = reader = _Plain(self, number, self._ports.pool, known.place)
            reader.open(generation, cursor, wanted.view, wanted.wait_ms)

    async def _cancel(self, generation: str) -> None:
        try:
            await self._locator.cancel(generation, self._tenant)
        except StreamwayError as refused:
            _log.info("cancel_not_passed_on", generation=generation, reason=refused.name)


class _Relay:
    """A ReaderSink."""

    __slots__ = ("_number", "_stream")

    def __init__(self, stream: RelayStream, number: int) -> None:
        self._stream = stream
        self._number = number

    def event(self, event: common_pb2.Event, kind: str) -> None:
        self._stream.put(self._number, event, kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self._stream.fail(self._number, error, delivered_until)


class _Plain:
    """An AttachSink: one subscription at one worker, passed on as it is."""

    __slots__ = ("_after", "_number", "_own", "_place", "_pool", "_stream")

    def __init__(self, stream: RelayStream, number: int, pool: AttachPool, place: Place) -> None:
        self._stream = stream
        self._number = number
        self._pool = pool
        self._place = place
        self._own = 0
        self._after = 0

    def open(self, generation: str, cursor: Cursor, view: View.ValueType, wait_ms: int) -> None:
        """Subscribes."""
        self._after = cursor.position
        client = self._pool.client(self._place.address, self._place.worker)
        self._own = client.subscribe(generation, cursor, view, self, wait_ms=wait_ms)

    def close(self) -> None:
        """Stops reading."""
        self._pool.client(self._place.address, self._place.worker).unsubscribe(self._own)

    def event(self, event: common_pb2.Event, kind: str) -> None:
        self._stream.put(self._number, event, kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self._stream.fail(self._number, error, delivered_until)

    def gap(self) -> None:
        self._stream.fail(self._number, EventsExpired(""), self._after)


async def _listen(stream: RelayStream, requests: AsyncIterator[inference_pb2.AttachRequest]) -> None:
    """Obeys until the edge half-closes."""
    async for request in requests:
        try:
            if len(request.commands) > _MOST_COMMANDS:
                raise InvalidArgument("commands", f"at most {_MOST_COMMANDS} in a message")
            for command in request.commands:
                stream.obey(command)
        except StreamwayError as refused:
            stream.end(refused)
            return
