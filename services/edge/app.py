"""The edge, put together. The only file that constructs; read top to bottom it is the stacking order."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from services.edge.core import mesh_picture
from services.edge.core.buffer_share import RequestRoom
from services.edge.io.buffer_shares import BufferShares
from services.edge.io.cache_page import CacheSurface
from services.edge.io.chat import ChatSurface
from services.edge.io.console import ConsoleSurface
from services.edge.io.contexts import ContextsSurface
from services.edge.io.desk import Desk
from services.edge.io.event_streams import EventStreams
from services.edge.io.failures import FailuresSurface
from services.edge.io.feedback import FeedbackSurface
from services.edge.io.gate import Gate
from services.edge.io.generations import GenerationsSurface
from services.edge.io.heartbeats import HeartbeatWheel
from services.edge.io.housekeeping import Housekeeper
from services.edge.io.http_errors import ErrorsMiddleware
from services.edge.io.listener import Listener
from services.edge.io.mesh_page import MeshSurface
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.models import ModelsSurface
from services.edge.io.outbox import Flusher
from services.edge.io.pressure import PressureWatch
from services.edge.io.responses import ResponsesSurface
from services.edge.io.responses_background import BackgroundResponses
from services.edge.io.responses_desk import ResponsesDesk
from services.edge.io.responses_store import ResponseStore
from services.edge.io.restores import Restores
from services.edge.io.routers import Routers
from services.edge.io.tenants_page import TenantsSurface
from services.edge.io.websocket import WebSocketSurface
from services.edge.settings import EdgeSettings
from streamway.attach import AttachPool
from streamway.auth import watch_tenancy
from streamway.config import SharedSettings
from streamway.errors import GoingAway
from streamway.following import ReaderPorts
from streamway.journal import Follower
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.telemetry.assembly import Telemetry
from streamway.telemetry.operations import OperationsServer
from streamway.valkey.connection import Valkey, connect
from streamway.valkey.leases import Lease
from streamway.valkey.link import Link

_log = structlog.get_logger("edge")

STATIC: Final = Path(__file__).parent / "static"
_FIRST_OPERATIONS_PORT: Final = 9100
# Longer than the follower's blocking read may take.
_BLOCKING_REPLY_S: Final = 15.0


class Edge:
    """One edge process; see `streamway.runtime.process.Service`."""

    def __init__(self, settings: EdgeSettings, shared: SharedSettings) -> None:
        self._settings = settings
        self._shared = shared
        self._clock = SystemClock()
        self._registry = CollectorRegistry()
        self._tenants = watch_tenancy(settings.host, shared, self._registry)
        self._metrics = EdgeMetrics(self._registry)
        self._closing = contextlib.AsyncExitStack()
        name = f"edge-{settings.index}"
        self._telemetry = Telemetry("edge", name, shared, self._registry)
        self._closing.callback(self._telemetry.close)
        self._must_run: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connects, then listens. What was started is closed again when a later step fails."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        settings, shared, metrics, closing = self._settings, self._shared, self._metrics, self._closing
        valkey: Valkey | None = None
        if not settings.routers:
            valkey = await connect(shared.valkey_url.get_secret_value())
            closing.push_async_callback(valkey.aclose)
        scope = await closing.enter_async_context(TaskScope("edge"))
        flusher = Flusher(
            metrics,
            slow_bytes=settings.slow_bytes,
            slow_s=settings.slow_s,
            buffer_bytes=settings.buffer_bytes,
            stuck_s=settings.slow_client_s,
            bound_of=self._tenants.buffered_bytes,
        )
        workers = AttachPool(
            shared,
            scope,
            reattach_s=settings.reattach_s,
            refused_s=settings.refused_s,
            silence_s=settings.silence_s,
            after_batch=flusher.flush,
        )
        closing.push_async_callback(workers.close)
        self._routers = routers = Routers(
            settings.routers,
            valkey,
            shared,
            scope,
            self._clock,
            metrics,
            answer_s=settings.router_answer_s,
            batch_done=flusher.flush,
        )
        closing.push_async_callback(routers.close)
        # One connection for what is asked and written, one for what blocks.
        url = shared.valkey_url.get_secret_value()
        store = Link(url, self._clock)
        blocking = Link(url, self._clock, reply_timeout_s=_BLOCKING_REPLY_S)
        follower = Follower(blocking, store)
        ports = ReaderPorts(
            pool=workers,
            journal=store,
            locate=routers.locate,
            scope=scope,
            follower=follower,
            after_batch=flusher.flush,
            takeover_wait_s=settings.takeover_wait_s,
            store_wait_s=settings.store_wait_s,
        )
        self._desk = desk = Desk(
            ports,
            routers,
            metrics,
            self._clock,
            settings.router_wait_s,
            settings.bulk_wait_s,
            self._tenants,
            RequestRoom(settings.stream_memory_bytes),
            self._telemetry.hops,
        )
        routers.when_up(desk.router_up)
        restores = Restores(store, settings.resume_grace_s)
        wheel = HeartbeatWheel(settings.heartbeat_s)
        closing.callback(wheel.close)

        gate = Gate(settings, self._tenants, wheel, traces=self._telemetry.hops.ratio, baggage_keys=shared.baggage_keys)
        limit = shared.max_message_bytes
        self._websockets = WebSocketSurface(gate, desk, restores, routers, flusher, wheel, metrics, settings, limit)
        buffers = BufferShares(settings.share_rules, desk, flusher, metrics, settings.review_s)
        pressure = PressureWatch(settings.pressure_rules, desk, self._websockets, workers, metrics, settings.review_s)
        streams = EventStreams(desk, flusher, wheel, metrics)
        chat = ChatSurface(gate, desk, restores, streams, metrics, settings, limit)
        generations = GenerationsSurface(gate, desk, restores, streams, metrics, settings, limit)
        response_store = ResponseStore(store, settings.response_keep_s, self._clock)
        responses_desk = ResponsesDesk(desk, response_store, scope)
        responses = ResponsesSurface(
            gate,
            responses_desk,
            response_store,
            streams,
            restores,
            metrics,
            settings,
            limit,
        )
        background = BackgroundResponses(responses_desk, response_store, self._clock)
        models = ModelsSurface(gate, routers)
        routes = [
            web.get("/v1/stream", self._websockets.get),
            web.post("/v1/chat/completions", chat.post),
            web.post("/v1/generations", generations.post),
            web.get("/v1/generations", generations.list),
            web.get("/v1/generations/{id}/events", generations.events),
            web.delete("/v1/generations/{id}", generations.delete),
            *responses.routes(),
            web.delete("/v1/contexts/{id}", ContextsSurface(gate, routers).delete),
            web.get("/v1/cache", CacheSurface(gate, routers).get),
            web.post("/v1/cache/entries/{entry}/feedback", FeedbackSurface(gate, routers).post),
            web.get("/v1/models", models.list),
            web.get("/v1/models/{id:.+}", models.one),
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            *self._console(gate, valkey),
        ]
        self._listener = Listener(settings, routes, [ErrorsMiddleware(metrics, limit).build()], limit)
        closing.push_async_callback(self._listener.close)
        port = _FIRST_OPERATIONS_PORT + settings.index if settings.operations_port is None else settings.operations_port
        self._operations = OperationsServer(
            settings.operations_host, port, self._registry, self._not_ready, self._telemetry.hops
        )
        closing.push_async_callback(self._operations.close)

        await self._operations.start()
        if settings.listen_fd is None:
            await self._listener.start()
        self._must_run = [
            scope.spawn(routers.follow_leases(), "discovery"),
            scope.spawn(self._telemetry.run(), "loop-lag"),
            scope.spawn(Housekeeper(lambda: len(self._websockets)).run(), "housekeeping"),
            scope.spawn(self._websockets.run(), "websockets"),
            scope.spawn(pressure.run(), "pressure"),
            scope.spawn(buffers.run(), "buffers"),
            scope.spawn(store.run(), "store"),
            scope.spawn(blocking.run(), "store-blocking"),
            scope.spawn(follower.run(), "follower"),
            scope.spawn(restores.run(), "restores"),
            scope.spawn(desk.keep_paused_alive(), "paused"),
            scope.spawn(background.run(), "background"),
            scope.spawn(self._tenants.run(), "tenants"),
        ]
        if settings.listen_fd is not None:
            # Who waits there is not refused yet, and another edge may take it.
            await self._until_ready()
            await self._listener.start()
        if valkey is not None:
            scope.spawn(self._be_seen(valkey, workers), "lease")
        _log.info("edge_listening", address=self.address, operations=self._operations.address)

    @property
    def address(self) -> str:
        """Where clients connect, "host:port"."""
        return self._listener.address

    @property
    def operations_address(self) -> str:
        """Where health and metrics are, "host:port"."""
        return self._operations.address

    async def failed(self) -> None:
        """Raises when a part that must run has ended by a fault."""
        done, _ = await asyncio.wait(self._must_run, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def drain(self) -> None:
        """Readiness off, no new work, clients told; then live generations have the grace to end."""
        settings = self._settings
        self._desk.draining = True
        self._websockets.go_away(GoingAway("edge"))
        self._listener.stop_listening()
        _log.info("edge_draining", generations=len(self._desk), websockets=len(self._websockets))
        # Requests that were sent before anybody could know: refusing them would make a restart visible.
        await asyncio.sleep(settings.drain_serve_s)
        self._desk.refusing = True
        self._listener.close_idle()
        try:
            async with asyncio.timeout(settings.drain_grace_s):
                await self._desk.emptied()
        except TimeoutError:
            _log.warning("drain_grace_over", generations=len(self._desk))
        self._desk.fail_all(GoingAway("edge"))
        await self._websockets.close_all()

    async def close(self) -> None:
        """Releases everything, last made first."""
        await self._closing.aclose()

    def _console(self, gate: Gate, valkey: Valkey | None) -> list[web.RouteDef]:
        """The pages, and what only they ask for."""
        settings = self._settings
        console = ConsoleSurface(gate, STATIC, settings.trace_url)
        failures = FailuresSurface(gate, settings.failures_socket)
        return [
            web.get("/v1/console", console.told),
            web.get("/v1/mesh", MeshSurface(gate, valkey, self._clock, settings.name).get),
            web.get("/v1/tenants", TenantsSurface(gate, self._tenants, valkey).get),
            web.get("/v1/failures", failures.get),
            web.post("/v1/failures/{worker}", failures.post),
            web.get("/", console.get),
            web.get("/{name:(?!v1/).+}", console.get),
        ]

    async def _be_seen(self, valkey: Valkey, workers: AttachPool) -> None:
        """Holds a lease, for the picture of the mesh and for `streamway trace`: no client finds edges by it."""

        def fields() -> dict[str, str]:
            reads = workers.reading(mesh_picture.MOST_STREAMS)
            told = mesh_picture.edge_fields(
                self.address, len(self._listener), len(self._desk), self._routers.linked, reads
            )
            return {**told, "operations_port": self.operations_address.rpartition(":")[2]}

        lease = Lease(valkey, self._clock, "edge", self._settings.name, fields)
        try:
            await lease.hold()
        finally:
            await lease.release()

    def _not_ready(self) -> str:
        if self._desk.draining:
            return "draining"
        return "" if self._routers.ready else "waiting for a router"

    async def _until_ready(self) -> None:
        """Waits for a router, as long as a request would."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.router_wait_s):
                while self._not_ready():  # noqa: ASYNC110 - at most once in the life of a process
                    await asyncio.sleep(0.02)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        waiting = self._not_ready()
        return web.Response(text=f"{waiting or 'ready'}\n", status=503 if waiting else 200)
