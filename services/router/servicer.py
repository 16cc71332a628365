"""The gRPC shell of the router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio

from services.router.core.catalogue import served_models
from services.router.core.context_table import Name
from services.router.core.events import TERMINAL
from services.router.core.opinions import Opinions
from services.router.core.validate import check_context_id
from services.router.interfaces import Opener
from services.router.io.books import Books
from services.router.io.cache_client import CacheClient
from services.router.io.connection import Connection, where_from
from services.router.io.context_store import digest_of
from services.router.io.contexts import Contexts
from services.router.io.locates import find
from services.router.io.locating import Locator
from services.router.io.outbox import Outbox
from services.router.io.registry import Registry
from services.router.metrics import RouterMetrics
from streamway import cachestatus
from streamway.errors import GoingAway, InvalidArgument, from_status
from streamway.following import ReaderPorts
from streamway.models.watching import ModelsWatch
from streamway.rpc import caller, standing
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_generation_id
from streamway.runtime.tasks import TaskScope
from streamway.tenancy.watching import TenancyWatch
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc
from streamway.v1.router_pb2 import Delivery

_MOST_COMMANDS = 1000
_LONGEST_ENTRY = 128


class RouterServicer(router_pb2_grpc.RouterServiceServicer):
    """RouterService. `scope` outlives every call."""

    def __init__(
        self,
        opener: Opener,
        registry: Registry,
        books: Books,
        locator: Locator,
        ports: ReaderPorts,
        scope: TaskScope,
        metrics: RouterMetrics,
        models: ModelsWatch,
        tenants: TenancyWatch,
        contexts: Contexts,
        cache: CacheClient,
        opinions: Opinions,
        clock: Clock,
        *,
        outbox_limit_bytes: int,
        gather_s: float,
        heartbeat_s: float,
        credentials_check_s: float,
    ) -> None:
        self._opener = opener
        self._registry = registry
        self._books = books
        self._locator = locator
        self._ports = ports
        self._scope = scope
        self._metrics = metrics
        self._models = models
        self._tenants = tenants
        self._contexts = contexts
        self._cache = cache
        self._opinions = opinions
        self._clock = clock
        self._outbox_limit_bytes = outbox_limit_bytes
        self._gather_s = gather_s
        self._heartbeat_s = heartbeat_s
        self._credentials_check_s = credentials_check_s
        self._connections: set[Connection] = set()

    async def quiet(self) -> None:
        """Returns when no call decides or relays anything."""
        while busy := [connection for connection in self._connections if connection.busy]:
            await busy[0].quiet()

    def going_away(self) -> None:
        """Ends every call, telling what is still relayed that the router goes."""
        for connection in list(self._connections):
            connection.going_away(GoingAway("router"))

    async def review(self) -> None:
        """Ends the calls of those who would not be let in any more, looked at each `credentials_check_s`, until cancelled."""
        while True:
            await asyncio.sleep(self._credentials_check_s)
            for connection in list(self._connections):
                if connection.review():
                    self._metrics.expelled.inc()

    async def Connect(  # noqa: N802 — gRPC's name
        self,
        request_iterator: AsyncIterator[router_pb2.ConnectRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[router_pb2.ConnectResponse]:
        """Many generations; see the proto."""
        with self._connection() as connection:
            listener = self._scope.spawn(_listen(connection, request_iterator), "connect-listen")
            try:
                while (batch := await connection.outbox.take()) is not None:
                    yield router_pb2.ConnectResponse(events=batch, located=connection.outbox.answers())
            finally:
                listener.cancel()

    async def Generate(  # noqa: N802
        self, request: router_pb2.GenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[router_pb2.GenerateResponse]:
        """One generation. A refusal is the call's status; what happens after `accepted` is in the events."""
        wanted = request.request
        if not wanted.generation:
            wanted.generation = new_generation_id()
        if not wanted.traceparent:
            wanted.traceparent = _said(context, "traceparent")
        wanted.baggage = wanted.baggage or _said(context, "baggage")
        with self._connection() as connection:
            connection.open(wanted, Delivery.DELIVERY_EVENTS)
            said, heard = False, cachestatus.Heard()
            while (batch := await connection.outbox.take(self._heartbeat_s)) is not None:
                if not batch:
                    beat = common_pb2.Event(generation=wanted.generation, heartbeat=common_pb2.Heartbeat())
                    yield router_pb2.GenerateResponse(events=[beat])
                    continue
                if not said and batch[0].HasField("error"):
                    raise from_status(batch[0].error.status)
                said = True
                heard.hear(batch)
                yield router_pb2.GenerateResponse(events=batch)
                if batch[-1].WhichOneof("event") in TERMINAL:
                    context.set_trailing_metadata(heard.trailers)
                    return

    async def Resume(  # noqa: N802
        self, request: router_pb2.ResumeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[router_pb2.ResumeResponse]:
        """Goes on from a cursor. Other readers of the generation are not disturbed. An unknown one is the call's status."""
        generation, cursor = where_from(request)
        with self._connection() as connection:
            connection.resume(generation, caller().tenant_for(request.tenant), cursor)
            said = False
            while (batch := await connection.outbox.take(self._heartbeat_s)) is not None:
                if not batch:
                    beat = common_pb2.Event(generation=generation, heartbeat=common_pb2.Heartbeat())
                    yield router_pb2.ResumeResponse(events=[beat])
                    continue
                if not said and batch[0].HasField("error"):
                    raise from_status(batch[0].error.status)
                said = True
                yield router_pb2.ResumeResponse(events=batch)
                if batch[-1].WhichOneof("event") in TERMINAL:
                    return

    async def Cancel(  # noqa: N802
        self, request: router_pb2.CancelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.CancelResponse:
        """Passes a cancel on to the worker that has the generation."""
        generation = _checked(request.generation)
        state = await self._locator.cancel(generation, caller().tenant_for(request.tenant))
        return router_pb2.CancelResponse(state=state)

    async def ForgetContext(  # noqa: N802
        self, request: router_pb2.ForgetContextRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.ForgetContextResponse:
        """Deletes a kept conversation of the caller's tenant."""
        check_context_id(request.id)
        name = Name(caller().tenant_for(request.tenant), digest_of(request.id))
        return router_pb2.ForgetContextResponse(found=await self._contexts.delete(name))

    async def ListModels(  # noqa: N802
        self, request: router_pb2.ListModelsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.ListModelsResponse:
        """What ready workers serve, and what else it may be asked for as: of all that what the caller's tenant may use."""
        models = served_models(self._registry.all(), self._models.routing)
        identity = caller()
        if request.tenant or not identity.mesh:
            tenant = self._tenants.tenancy.tenant(identity.tenant_for(request.tenant))
            models = [model for model in models if tenant is not None and tenant.allows(model.name)]
        return router_pb2.ListModelsResponse(models=models)

    async def GetCacheStats(  # noqa: N802
        self, request: router_pb2.GetCacheStatsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.GetCacheStatsResponse:
        """What the cache says of the caller's tenant."""
        tenant = caller().tenant_for(request.tenant)
        return router_pb2.GetCacheStatsResponse(stats=await self._cache.stats(tenant))

    async def GetGeneration(  # noqa: N802
        self, request: router_pb2.GetGenerationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.GetGenerationResponse:
        """What record and channel say, and where the generation can be read now."""
        return await find(self._locator, request, caller().tenant_for(request.tenant))

    async def GiveFeedback(  # noqa: N802
        self, request: router_pb2.GiveFeedbackRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.GiveFeedbackResponse:
        """Passes an opinion on to the cache, for the caller's tenant."""
        if not 0 < len(request.entry) <= _LONGEST_ENTRY:
            raise InvalidArgument("entry", f"must have 1 to {_LONGEST_ENTRY} characters")
        tenant = caller().tenant_for(request.tenant)
        self._opinions.take(tenant, self._clock.monotonic())
        known = await self._cache.feedback(tenant, request.entry, request.good)
        return router_pb2.GiveFeedbackResponse(known=bool(known), asked=known is not None)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        outbox = Outbox(self._outbox_limit_bytes, self._gather_s)
        connection = Connection(standing(), self._opener, self._books, self._locator, self._ports, self._scope, outbox)
        self._connections.add(connection)
        self._metrics.streams.inc()
        try:
            yield connection
        finally:
            self._connections.discard(connection)
            self._metrics.streams.dec()
            connection.leave()


async def _listen(connection: Connection, requests: AsyncIterator[router_pb2.ConnectRequest]) -> None:
    """Obeys what the caller sends until it half-closes."""
    async for request in requests:
        if len(request.commands) > _MOST_COMMANDS:
            connection.outbox.end(InvalidArgument("commands", f"at most {_MOST_COMMANDS} in a message"))
            return
        for command in request.commands:
            connection.obey(command)
    connection.finish()


def _checked(generation: str) -> str:
    if not generation:
        raise InvalidArgument("generation", "must not be empty")
    return generation


def _said(context: grpc.aio.ServicerContext[Any, Any], name: str) -> str:
    """What the caller's metadata says of its trace or its baggage."""
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return str(value)
    return ""
