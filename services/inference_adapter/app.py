"""Puts the inference-adapter together, and takes it down in order.

lanes, pool ──► LaneLoop ──► Worker ──► Generation ◄──► Backend
                               │            │ flush; JournaledGeneration ──► Writing ──► response channel
                 Window, Memory┘            │                                   │ confirmed
                                       Transcript ◄─────────────────────────────┘
                                            └──► Subscription ──► Outbox ──► Attach, Generate
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from redis.exceptions import RedisError

from services.inference_adapter.backends.openai_http.sweep import Sweep
from services.inference_adapter.core.concurrency import Concurrency
from services.inference_adapter.core.engine_pace import EnginePace
from services.inference_adapter.core.flush_window import FlushWindow
from services.inference_adapter.core.kv_pressure import KVPressure
from services.inference_adapter.core.memory import Memory
from services.inference_adapter.core.preload import PreloadDepth
from services.inference_adapter.core.urgency import slots_ahead
from services.inference_adapter.core.warming import Load
from services.inference_adapter.core.window import Window
from services.inference_adapter.interfaces import Backend
from services.inference_adapter.io.books import Books
from services.inference_adapter.io.bound_watch import BoundWatch
from services.inference_adapter.io.direct_quota import DirectQuota
from services.inference_adapter.io.dismissals import Dismissals
from services.inference_adapter.io.draining import Drain
from services.inference_adapter.io.engine_monitor import EngineMonitor
from services.inference_adapter.io.fallback_reclaimer import FallbackReclaimer
from services.inference_adapter.io.fanout.attach import AttachLimits
from services.inference_adapter.io.fanout.directory import Directory
from services.inference_adapter.io.fanout.flusher import Flusher
from services.inference_adapter.io.floor_watch import FloorWatch
from services.inference_adapter.io.gauges import show
from services.inference_adapter.io.journaling import Journaling
from services.inference_adapter.io.lane_loop import LaneLoop
from services.inference_adapter.io.limiting import Limiting
from services.inference_adapter.io.peers import Peers
from services.inference_adapter.io.registration import Registration
from services.inference_adapter.io.retries import Retries
from services.inference_adapter.io.routers import Routers
from services.inference_adapter.io.ticking import look_again_and_again
from services.inference_adapter.io.till import Till
from services.inference_adapter.io.token_check import TokenCheck
from services.inference_adapter.io.worker import Worker
from services.inference_adapter.io.workplace import Workplace
from services.inference_adapter.metrics import AdapterMetrics
from services.inference_adapter.servicer import InferenceServicer
from services.inference_adapter.settings import AdapterSettings
from services.inference_adapter.warmth import make_turns
from streamway.auth import watch_tenancy
from streamway.config import SharedSettings
from streamway.lanes import LaneReader, own_lanes, pool_lanes
from streamway.memory import MemoryWatch, Yielding
from streamway.memory.gpu import GPUMemory
from streamway.models.abilities import to_words
from streamway.models.watching import ModelsWatch
from streamway.rpc import MeshServer, MountedService
from streamway.runtime.clock import Clock, SystemClock
from streamway.runtime.cpu import CpuMeter
from streamway.runtime.ids import new_epoch
from streamway.runtime.tasks import TaskScope
from streamway.telemetry.assembly import Telemetry
from streamway.telemetry.operations import OperationsServer
from streamway.v1 import inference_pb2_grpc
from streamway.valkey.connection import Valkey, blocking_client, connect
from streamway.valkey.leases import Lease
from streamway.valkey.link import Link

_log = structlog.get_logger("adapter")


class Adapter:
    """The service. `backend` is the engine, `sweep` reads its sockets while the process is busy; everything else is made here."""

    def __init__(
        self,
        settings: AdapterSettings,
        shared: SharedSettings,
        backend: Backend,
        clock: Clock | None = None,
        sweep: Sweep | None = None,
    ) -> None:
        self._settings = settings
        self._shared = shared
        self._backend = backend
        self._sweep = sweep
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._scope = TaskScope("adapter")
        self._waiting_for = "starting"
        # Whoever has the KV of an earlier life in mind sees that it is gone.
        self._began_ms = int(self._clock.unix() * 1000)
        self._draining = False
        self._registry = CollectorRegistry()
        self._tenants = watch_tenancy(settings.host, shared, self._registry)
        self._prices = ModelsWatch(shared, self._registry)
        self._memory = MemoryWatch(settings.memory_watermark, self._registry)
        self._floor = FloorWatch(settings.answer_floor())
        self._bound = BoundWatch(settings.memory_drain, self._clock.monotonic())
        self._pace = EnginePace()
        self._telemetry = Telemetry("adapter", settings.worker, shared, self._registry)
        self._operations = OperationsServer(
            settings.operations_host,
            settings.operations,
            self._registry,
            lambda: self._waiting_for,
            self._telemetry.hops,
        )

    @property
    def address(self) -> str:
        """Where gRPC listens, "host:port"; valid after `start`."""
        return self._server.address

    @property
    def operations_address(self) -> str:
        """Where health and metrics listen, "host:port"; valid after `start`."""
        return self._operations.address

    @property
    def window(self) -> Window:
        """What the worker has taken and not finished; to look at, after `start`."""
        return self._worker.window

    async def start(self) -> None:
        """Valkey, engine, gRPC, lanes, lease; SERVING comes last. Unwinds when a step fails."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def failed(self) -> None:
        """Returns when the engine's process has ended, or is to be started anew; raises when a loop of ours has failed. The
        supervisor starts us anew."""
        info = self._backend.info()
        # Ending ourselves helps only where the engine ends with us.
        ours = info.pid > 0 or info.kind == "llamacpp_inside"
        engine = self._scope.spawn(self._backend.failed(), "engine")
        full = self._scope.spawn(self._bound.near.wait(), "memory-bound")
        watched: set[asyncio.Task[Any]] = {engine, self._work_task, full}
        if ours:
            watched.add(self._scope.spawn(self._monitor.hopeless.wait(), "engine-hopeless"))
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if full in done:
            # Better now, with its answers ended or given away, than by the kernel in the middle of them.
            await self.drain()
        _log.error("worker_ends", worker=self._settings.worker, memory=full in done, engine=full not in done)

    async def drain(self) -> None:
        """Tells everybody, takes what routers still send until they have noticed, and lets accepted work end."""
        self._draining = self._servicer.draining = True
        self._turns.stop()
        self._waiting_for = "draining"
        self._lane_loop.leave_the_pool()
        await self._server.serving(False)
        await self._registration.tell()
        _log.info("draining", running=self._worker.window.running, queued=self._worker.window.waiting)
        # Now, since the sessions' next turns go elsewhere at once; and again what has ended since.
        await self._backend.park()
        drain = Drain(self._worker, self._lane_loop, self._directory, self._clock)
        await drain.wait(self._settings.drain_notice_s, self._settings.drain_grace_s)
        await self._backend.park()
        await drain.give_up()

    async def close(self) -> None:
        """Releases everything, in the reverse order of the start."""
        await self._stack.aclose()

    async def _start(self) -> None:
        settings, stack = self._settings, self._stack
        self._floor.check()
        stack.callback(self._telemetry.close)
        await self._operations.start()
        stack.push_async_callback(self._operations.close)

        self._waiting_for = "waiting for Valkey"
        url = self._shared.valkey_url.get_secret_value()
        valkey = await connect(url)
        stack.push_async_callback(valkey.aclose)
        blocking, pool_blocking = blocking_client(url), blocking_client(url)
        stack.push_async_callback(blocking.aclose)
        stack.push_async_callback(pool_blocking.aclose)

        self._waiting_for = "the engine is loading its model"
        if self._sweep is not None:
            stack.callback(self._sweep.close)
        stack.push_async_callback(self._backend.close)
        await self._backend.start()
        info = self._backend.info()
        _log.info("engine_ready", kind=info.kind, address=info.address, slots=info.slots)

        self._assemble(valkey, blocking, pool_blocking, Link(url, self._clock))
        self._waiting_for = "starting to listen"
        await self._server.start()
        stack.push_async_callback(self._server.stop, 0.5)
        stack.push_async_callback(self._write_the_rest)
        stack.push_async_callback(self._scope.close)
        self._work_task = self._scope.spawn(self._work(), "work")

        self._waiting_for = "registering"
        lease = Lease(valkey, self._clock, "worker", settings.worker, self._lease_fields, settings.lease_s)
        self._registration = Registration(lease, settings.worker)
        await self._registration.enter()
        stack.push_async_callback(self._registration.leave)
        hold = self._scope.spawn(self._registration.hold(), "lease")
        stack.callback(hold.cancel)
        await self._server.serving(True)
        self._waiting_for = ""
        _log.info("worker_ready", worker=settings.worker, address=self.address)

    def _assemble(self, valkey: Valkey, blocking: Valkey, pool_blocking: Valkey, link: Link) -> None:
        settings, metrics = self._settings, AdapterMetrics(self._registry)
        memory = self._memory_of_generations()
        wait = FlushWindow(settings.flush_ms / 1000, settings.flush_late_ms / 1000)
        info = self._backend.info()
        concurrency = Concurrency(settings.limit, info.slots, self._clock.monotonic(), elastic=info.elastic)
        window = window_of(settings, concurrency.limit)
        peers = Peers(valkey, self._clock, settings.worker)
        self._turns = make_turns(settings, valkey, link, self._backend, self._clock, metrics, self._warmable)
        self._retries = Retries(settings.retry_budget(), valkey, peers, self._clock, metrics)
        self._take_work(
            valkey,
            link,
            LaneReader(valkey, blocking, settings.worker, own_lanes(settings.worker), link),
            LaneReader(valkey, pool_blocking, settings.worker, pool_lanes(self._models()), link),
            peers,
            self._workplace(memory, wait, concurrency, metrics),
            window,
        )
        if self._sweep is not None:
            self._sweep.unless(lambda: window.waiting > 0)
        self._monitor = EngineMonitor(
            self._backend,
            KVPressure(settings.kv_mark, settings.kv_release, settings.kv_mark_s),
            self._clock,
            settings.engine_check_s,
            settings.health_timeout_s,
            lambda healthy: self._worker.pause(not healthy),
            self._worker.crowd,
            GPUMemory.of_this_process().share,
            TokenCheck(self._backend, settings.health_timeout_s),
            lambda: metrics.tokens_made,
        )
        self._join_others(valkey, link, peers, concurrency, metrics)
        self._serve(link, concurrency, metrics)
        show(metrics, self._pace, wait, window, memory, self._journaling, self._monitor)

    def _memory_of_generations(self) -> Memory:
        """What has been said, for readers that come later; it yields where this process comes near its bound."""
        settings = self._settings
        memory = Memory(
            most_bytes=settings.memory_bytes,
            most_ended=settings.memory_generations,
            generation_bytes=settings.memory_generation_bytes,
            ended_ttl_s=settings.memory_s,
            most_gone=settings.memory_ids,
            bound_of=self._tenants.buffered_bytes,
        )
        room = Yielding(settings.memory_bytes)
        self._memory.follow(lambda: memory.bound(room.look(self._memory.pressed)))
        self._memory.follow(lambda: self._bound.look(self._clock.monotonic()))
        return memory

    def _workplace(
        self, memory: Memory, wait: FlushWindow, concurrency: Concurrency, metrics: AdapterMetrics
    ) -> Workplace:
        """What every generation of this worker uses."""
        settings = self._settings
        flusher = Flusher(asyncio.get_running_loop(), wait, metrics, self._sweep)
        self._stack.callback(flusher.close)
        return Workplace(
            settings.worker,
            self._backend,
            memory,
            flusher,
            self._clock,
            metrics,
            self._pace,
            concurrency,
            new_epoch,
            settings.flush_units,
            settings.silence_limits(),
            self._retries,
            self._rest,
            self._doubt,
            self._turns,
            self._telemetry.hops,
            Till(self._prices, metrics),
        )

    def _take_work(
        self,
        valkey: Valkey,
        link: Link,
        lanes: LaneReader,
        pool: LaneReader,
        peers: Peers,
        place: Workplace,
        window: Window,
    ) -> None:
        """From the lanes to the engine, and what is written of it."""
        settings, clock = self._settings, self._clock
        self._books = Books(valkey, lanes, link)
        self._directory = Directory(
            settings.worker, place.memory, clock, settings.heartbeat_s, settings.attach_heartbeat_s
        )
        dismissals = Dismissals(settings.worker, place.memory, self._directory, self._books, clock)
        self._journaling = Journaling(
            link,
            valkey,
            self._books,
            peers,
            self._scope,
            clock,
            settings.worker,
            strict_pause_s=settings.strict_pause_s,
            live_ttl_ms=int(settings.channel_live_s * 1000),
            finished_ttl_ms=int(settings.channel_finished_s * 1000),
        )
        self._worker = Worker(
            place,
            window,
            self._directory,
            self._books,
            dismissals,
            self._journaling,
            memory_short=self._floor.short,
            queue_timeout_s=settings.queue_timeout_s,
            resume_grace_s=settings.resume_grace_s,
            orphan_grace_s=settings.orphan_grace_s,
        )
        self._lane_loop = LaneLoop(
            valkey,
            link,
            lanes,
            pool,
            self._worker,
            dismissals,
            self._books,
            self._journaling,
            self._memory,
            name=settings.worker,
            task_lease_s=settings.task_lease_s,
            gather_s=self._shared.gather_late_ms / 1000,
        )

    def _join_others(
        self, valkey: Valkey, link: Link, peers: Peers, concurrency: Concurrency, metrics: AdapterMetrics
    ) -> None:
        """What it does beside the other processes of the mesh: takes back what dead ones had, and keeps to its part."""
        settings, routers = self._settings, Routers(valkey, self._clock)
        self._reclaimer = FallbackReclaimer(
            valkey,
            link,
            peers,
            routers,
            self._clock,
            settings.worker,
            self._models,
            after_s=settings.reclaim_after_s,
            lease_s=settings.lease_s,
        )
        self._limiting = Limiting(
            concurrency,
            self._worker,
            CpuMeter(),
            metrics,
            kv_used=lambda: self._monitor.load.kv_used,
            mesh_generations=routers.generations,
            memory_pressed=lambda: self._memory.share >= settings.memory_limit_mark,
        )

    def _serve(self, link: Link, concurrency: Concurrency, metrics: AdapterMetrics) -> None:
        """What it answers over gRPC."""
        settings = self._settings
        self._direct_quota = DirectQuota(link, settings.quota_lease_s, settings.quota_share)
        self._servicer = InferenceServicer(
            settings.worker,
            self._worker,
            self._directory,
            self._backend,
            self._monitor,
            self._pace,
            self._clock,
            AttachLimits(
                settings.reader_buffer_bytes,
                settings.most_subscriptions,
                settings.queue_timeout_s,
                self._shared.gather_late_ms / 1000,
            ),
            self._tenants,
            self._memory,
            self._direct_quota,
            concurrency,
            metrics,
        )
        add = inference_pb2_grpc.add_InferenceServiceServicer_to_server
        self._server = MeshServer(
            settings.host,
            settings.port,
            self._shared,
            [MountedService("streamway.v1.InferenceService", self._servicer, add, ("Attach",))],
            telemetry=self._telemetry.interceptors(),
            tenants=self._tenants,
        )

    def _models(self) -> list[str]:
        return [model.name for model in self._backend.info().models]

    def _rest(self, seconds: float) -> None:
        """The engine wants no new call for so long."""
        self._monitor.rest(seconds)

    def _doubt(self) -> None:
        """A call was given up for the engine's silence."""
        self._monitor.doubt()

    def _warmable(self) -> Load | None:
        """How busy the worker is; None while it is to be left alone."""
        if self._draining or self._waiting_for or not self._monitor.healthy:
            return None
        window = self._worker.window
        return Load(window.running, window.waiting, window.slots, self._monitor.load.kv_used)

    def _lease_fields(self) -> dict[str, str]:
        info, window, load = self._backend.info(), self._worker.window, self._monitor.load
        now, waits = self._clock.monotonic(), self._pace.first_tokens
        models = [
            {
                "name": model.name,
                "context_tokens": model.context_tokens,
                "first_token_ms": round(waits.p99_ms(model.name, now), 1),
            }
            for model in info.models
        ]
        return {
            "address": self._settings.advertise or self.address,
            "operations_port": self._operations.address.rpartition(":")[2],
            "models": json.dumps(models),
            "slots": str(info.slots),
            "limit": str(window.slots),
            "running": str(window.running),
            "running_lanes": json.dumps(window.running_lanes),
            "queued": str(window.waiting),
            "window_free": str(window.free),
            "preload_depth": str(window.preload.value),
            "load_tokens": str(self._worker.tokens),
            "prefill_ms": f"{self._pace.prefill_ms:.5f}",
            "slot_ms": f"{self._pace.slot_ms:.1f}",
            "kv_used": "" if load.kv_used is None else f"{load.kv_used:.4f}",
            "kv_full": "1" if self._monitor.kv_full else "0",
            "memory_pressed": "1" if self._memory.pressed else "0",
            "draining": "1" if self._draining else "0",
            "engine": info.kind,
            "cannot": to_words(info.capabilities.cannot),
            "healthy": "1" if self._monitor.healthy else "0",
            "began_ms": str(self._began_ms),
            "reported_ms": str(int(self._clock.unix() * 1000)),
        }

    async def _write_the_rest(self) -> None:
        """What ended last must not look unfinished after a restart."""
        try:
            await self._books.write()
            await self._turns.write()
        except (RedisError, OSError) as problem:
            _log.warning("tasks_left_pending", problem=type(problem).__name__)

    async def _work(self) -> None:
        """The loops without which the worker does not work: when one fails, all do."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._journaling.run(), name="journaling")
            group.create_task(self._lane_loop.run(), name="lanes")
            group.create_task(self._reclaimer.run(), name="reclaimer")
            group.create_task(self._monitor.run(), name="engine-monitor")
            group.create_task(self._turns.run(), name="turns")
            group.create_task(self._direct_quota.run(), name="direct-quota")
            group.create_task(self._retries.run(), name="retries")
            group.create_task(look_again_and_again(self._look), name="tick")
            group.create_task(self._tenants.run(), name="tenants")
            group.create_task(self._prices.run(), name="prices")
            group.create_task(self._memory.run(), name="memory")
            group.create_task(self._telemetry.run(), name="process")

    def _look(self) -> None:
        self._monitor.tick()
        self._worker.tick()
        self._limiting.tick(self._clock.monotonic())
        self._directory.tick()


def window_of(settings: AdapterSettings, slots: int) -> Window:
    """The window as configured."""
    depth, ahead = settings.preload_depth, settings.slots_ahead
    return Window(
        slots,
        PreloadDepth(depth, max(depth, settings.most_preload_depth)),
        settings.degrade_after_s or None,
        slots_ahead(slots) if ahead is None else ahead,
    )
