"""InferenceService on gRPC: a thin shell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from services.inference_adapter.core.capabilities import Capabilities
from services.inference_adapter.core.concurrency import Concurrency
from services.inference_adapter.core.engine_pace import EnginePace
from services.inference_adapter.core.taking import class_of, rank_of
from services.inference_adapter.interfaces import Backend, Reloadable
from services.inference_adapter.io.direct_quota import DirectQuota
from services.inference_adapter.io.engine_monitor import EngineMonitor
from services.inference_adapter.io.fanout.attach import AttachLimits, AttachStream
from services.inference_adapter.io.fanout.directory import Directory
from services.inference_adapter.io.fanout.outbox import Outbox
from services.inference_adapter.io.fanout.subscription import Subscription
from services.inference_adapter.io.generation import Generation
from services.inference_adapter.io.worker import Worker
from services.inference_adapter.metrics import AdapterMetrics
from services.inference_adapter.validation import check_request
from streamway.affinity import session_key
from streamway.auth import Identity
from streamway.errors import (
    DuplicateId,
    GoingAway,
    InvalidArgument,
    MemoryPressure,
    NoWorkers,
    QueueFull,
    Unauthenticated,
)
from streamway.memory import MemoryWatch
from streamway.rpc import caller
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_generation_id
from streamway.tenancy import Tenant, entitle
from streamway.tenancy.watching import TenancyWatch
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from streamway.valkey.keys import is_bulk, task_class

# How long a refused direct call is asked to wait.
_RETRY_S = 1.0


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Serves readers, direct callers, and whoever wants to know the load. `name` is the worker's."""

    def __init__(
        self,
        name: str,
        worker: Worker,
        directory: Directory,
        backend: Backend,
        monitor: EngineMonitor,
        pace: EnginePace,
        clock: Clock,
        limits: AttachLimits,
        tenants: TenancyWatch,
        memory: MemoryWatch,
        quota: DirectQuota,
        concurrency: Concurrency,
        metrics: AdapterMetrics,
    ) -> None:
        self._name = name
        self._worker = worker
        self._directory = directory
        self._backend = backend
        self._reloadable = backend if isinstance(backend, Reloadable) else None
        self._monitor = monitor
        self._pace = pace
        self._clock = clock
        self._limits = limits
        self._tenants = tenants
        self._memory = memory
        self._quota = quota
        self._concurrency = concurrency
        self._metrics = metrics
        self.draining = False

    # Its answers are bytes already: see `MountedService.serialised` in `app.py`.
    def Attach(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[inference_pb2.AttachRequest], context: Any
    ) -> AsyncIterator[bytes]:
        identity = caller()
        tenant = None if identity.mesh else identity.tenant
        stream = AttachStream(self._worker, self._directory, self._clock, self._limits, tenant)
        return stream.run(request_iterator)

    async def Generate(  # noqa: N802
        self, request: inference_pb2.InferenceServiceGenerateRequest, context: Any
    ) -> AsyncIterator[inference_pb2.InferenceServiceGenerateResponse]:
        wanted, lowered, tenant = await self._checked(request.request)
        reserved = await self._quota.reserve(wanted, tenant)
        outbox = Outbox(self._limits.buffer_bytes)
        self._directory.opened(outbox)
        generation: Generation | None = None
        last: common_pb2.Event | None = None
        try:
            generation = self._open(wanted, outbox, lowered)
            while await outbox.wait():
                response = inference_pb2.InferenceServiceGenerateResponse.FromString(outbox.batch())
                last = next((event for event in reversed(response.events) if event.position), last)
                yield response
        finally:
            self._quota.ended(reserved, wanted, last)
            self._directory.closed(outbox)
            if generation is not None:
                self._worker.left(generation)

    async def GetLoad(self, request: inference_pb2.GetLoadRequest, context: Any) -> inference_pb2.GetLoadResponse:  # noqa: N802
        info, window, load = self._backend.info(), self._worker.window, self._monitor.load
        engine = inference_pb2.Engine(kind=info.kind, healthy=self._monitor.healthy, asleep=load.asleep)
        engine.capabilities.CopyFrom(_told(info.capabilities))
        if caller().mesh:
            engine.address, engine.pid = info.address, info.pid
        return inference_pb2.GetLoadResponse(
            worker=self._name,
            models=self._models_for(caller()),
            slots=info.slots,
            running=window.running,
            queued=window.waiting,
            window_free=window.free,
            kv_used=load.kv_used,
            context_tokens=min((model.context_tokens for model in info.models), default=0),
            engine=engine,
            draining=self.draining,
            subscriptions=self._worker.live,
            load_tokens=self._worker.tokens,
            prefill_ms=self._pace.prefill_ms,
            slot_ms=self._pace.slot_ms,
            kv_full=self._monitor.kv_full,
            put_aside=load.put_aside,
            memory_pressed=self._memory.pressed,
            limit=window.slots,
            running_lanes=window.running_lanes,
            preload_depth=window.preload.value,
            slots_why=info.why,
            limit_why=self._concurrency.why,
            tokens_made=self._metrics.tokens_made,
            reloading=self._reloadable.reloading if self._reloadable is not None else "",
        )

    async def Reload(self, request: inference_pb2.ReloadRequest, context: Any) -> inference_pb2.ReloadResponse:  # noqa: N802
        if not caller().mesh:
            raise Unauthenticated("exchanging weights needs the mesh token")
        if self.draining:
            raise GoingAway("worker")
        if self._reloadable is None:
            kind = self._backend.info().kind
            raise InvalidArgument(
                "worker", f"the engine of {self._name!r} ({kind}) has no model file of ours to reload"
            )
        done = await self._reloadable.reload()
        return inference_pb2.ReloadResponse(
            file=done.file,
            why_not_beside=done.why_not_beside,
            load_ms=round(done.load_s * 1000),
            took_ms=round(done.took_s * 1000),
        )

    async def _checked(
        self, request: common_pb2.GenerationRequest
    ) -> tuple[common_pb2.GenerationRequest, int | None, Tenant]:
        """The request as it will run, the priority it was lowered to, and whose it is."""
        identity = caller()
        served = [model.name for model in self._backend.info().models]
        check_request(request, served, self._models_for(identity))
        if self.draining:
            raise GoingAway("worker")
        if not self._monitor.healthy:
            raise NoWorkers(request.model)
        name = identity.tenant_for(request.tenant)
        if is_bulk(task_class(request.priority)) and (self._memory.pressed or self._worker.has_too_much(name)):
            raise MemoryPressure("worker")
        if not await self._worker.room.for_call():
            raise QueueFull(request.model, _RETRY_S)
        wanted = common_pb2.GenerationRequest()
        wanted.CopyFrom(request)
        wanted.generation = request.generation or new_generation_id()
        wanted.tenant = name
        wanted.traceparent = self._worker.traceparent(wanted.traceparent)
        if not identity.mesh:
            wanted.ClearField("entitlement")
        if not wanted.session and identity.session:
            wanted.session = session_key.of_claim(identity.session)
        tenant, lowered = entitle(wanted, self._tenants.tenancy)
        return wanted, lowered, tenant

    def _models_for(self, identity: Identity) -> list[str]:
        """What is served here, to a tenant only what it may use."""
        served = [model.name for model in self._backend.info().models]
        if identity.mesh:
            return served
        tenant = self._tenants.tenancy.tenant(identity.tenant)
        return [name for name in served if tenant is not None and tenant.allows(name)]

    def _open(self, request: common_pb2.GenerationRequest, outbox: Outbox, lowered: int | None) -> Generation:
        rank = rank_of(class_of(request))
        accepted = common_pb2.Accepted(
            worker=self._name,
            queue_position=self._worker.window.ahead_of_new(rank, request.priority),
            durability=common_pb2.DURABILITY_OFF,
            cursor="0-1",
            model=request.model,
            route="direct",
            cache="off",
            session=request.session,
            lowered_priority=lowered,
            traceparent=request.traceparent,
        )

        def read_from_the_start(generation: Generation) -> None:
            subscription = Subscription(outbox, self._clock, 0, generation.id, tenant=None, named=True)
            outbox.add(subscription)
            subscription.bind(generation.transcript)
            generation.accept(accepted)
            outbox.no_more_commands()

        generation = self._worker.admit(request, self._clock.unix(), None, read_from_the_start)
        if generation is None:
            raise DuplicateId(request.generation)
        return generation


def _told(known: Capabilities) -> inference_pb2.EngineCapabilities:
    return inference_pb2.EngineCapabilities(
        profile=known.profile,
        version=known.version,
        can=sorted(known.can),
        cannot=sorted(known.cannot),
        tried=sorted(known.tried),
        kv_blocks=known.kv_blocks,
        kv_block_tokens=known.kv_block_tokens,
        adapters=known.adapters,
    )
