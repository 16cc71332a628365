"""Fills an idle engine's KV with what will be wanted: one-token calls through the worker's own backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import structlog
from redis.exceptions import RedisError

from services.inference_adapter.core.context import LEAST_BYTES, digest, one_token
from services.inference_adapter.core.warming import Kind, Load, Name, Prefix, Warming
from services.inference_adapter.interfaces import Backend, EngineCall, EngineSink
from services.inference_adapter.io.prompts import Prompts
from services.inference_adapter.io.snapshots import Snapshots
from services.inference_adapter.metrics import AdapterMetrics
from streamway.errors import StreamwayError
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

_log = structlog.get_logger("adapter")

Outcome = Literal["done", "failed", "stopped"]
_LOOK_S: Final = 1.0
_TICK_S: Final = 0.05
_READ_AT_ONCE: Final = 16
# A call that hangs keeps a slot from nobody, but others from being warmed.
_LONGEST_CALL_S: Final = 60.0


class Warmer:
    """`load`: None while nothing may be warmed: the engine is ill, or the worker drains."""

    def __init__(
        self,
        valkey: Valkey,
        backend: Backend,
        warming: Warming,
        snapshots: Snapshots,
        prompts: Prompts,
        clock: Clock,
        metrics: AdapterMetrics,
        load: Callable[[], Load | None],
        *,
        worker: str,
        most_prompts: int,
    ) -> None:
        self._valkey = valkey
        self._backend = backend
        self._warming = warming
        self._snapshots = snapshots
        self._prompts = prompts
        self._clock = clock
        self._metrics = metrics
        self._load = load
        self._worker = worker
        self._most_prompts = most_prompts
        self._born_ms = int(clock.unix() * 1000)
        self._call: _Call | None = None

    def began(self, name: Name) -> None:
        """A real request begins with this prefix; whatever is under way makes room for it."""
        self._warming.began(name, self._clock.monotonic())
        self.stop()

    def used(self, name: Name, cached_tokens: int) -> None:
        """A real request that began with this prefix has ended; the engine found so many tokens in KV."""
        kind = self._warming.used(name, self._clock.monotonic())
        if kind is not None and cached_tokens:
            self._metrics.warm_hits.labels(kind).inc()

    def stop(self) -> None:
        """Ends the call under way, if there is one."""
        if self._call is not None:
            self._call.stop()

    async def run(self) -> None:
        """Looks for what to warm and warms it, until cancelled."""
        greeted = False
        looked_at = float("-inf")
        try:
            while True:
                if self._clock.monotonic() - looked_at >= _LOOK_S:
                    looked_at = self._clock.monotonic()
                    try:
                        if not greeted:
                            await self._look_at_prompts()
                            greeted = True
                        await self._look_at_arrivals()
                    except (RedisError, OSError):
                        pass  # the store is away: everybody else says so, and nothing here is owed to anybody
                load = self._load()
                prefix = self._warming.next(load, self._clock.monotonic()) if load is not None else None
                if prefix is not None:
                    await self._warm(prefix)
                else:
                    await asyncio.sleep(_TICK_S if len(self._warming) else _LOOK_S)
        finally:
            self.stop()

    async def _look_at_prompts(self) -> None:
        """The worker is new."""
        now = self._clock.monotonic()
        for model in self._backend.info().models:
            for tenant, context in await self._prompts.hottest(model.name, self._most_prompts):
                self._warming.offer(Prefix("system", (tenant, model.name, digest(context)), context), now)

    async def _look_at_arrivals(self) -> None:
        """Sessions that a router has seen coming, the newest first."""
        if (most := min(_READ_AT_ONCE, self._warming.room)) <= 0:
            return
        served = {model.name for model in self._backend.info().models}
        popped: list[Any] = await self._valkey.zpopmax(keys.arrivals(self._worker), most)
        for member, _ in popped:
            try:
                tenant, model, session = msgspec.json.decode(member, type=tuple[str, str, str])
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            found = await self._snapshots.read(tenant, model, session) if model in served else None
            if found is None:
                continue
            snapshot, context = found
            if (snapshot.worker == self._worker and snapshot.at_ms >= self._born_ms) or len(context) < LEAST_BYTES:
                continue
            now = self._clock.monotonic()
            grown_at = now - max(0.0, self._clock.unix() - snapshot.at_ms / 1000)
            self._warming.offer(Prefix("session", (tenant, model, session), context, grown_at), now)

    async def _warm(self, prefix: Prefix) -> None:
        clock, warming, metrics = self._clock, self._warming, self._metrics
        begun = clock.monotonic()
        try:
            request = one_token(prefix.context, prefix.tenant, prefix.model, prefix.session)
        except ValueError:
            warming.failed(prefix, 0.0, begun)
            return
        call = self._call = _Call()
        try:
            call.run(self._backend, request)
            async with asyncio.timeout(_LONGEST_CALL_S):
                await call.over.wait()
        except TimeoutError:
            call.stop("failed")
        finally:
            call.stop()
            self._call = None
        now = clock.monotonic()
        took_s = now - begun
        match call.outcome:
            case "done":
                warming.done(prefix, took_s, now)
                self._count(prefix.kind, call.usage)
            case "failed":
                warming.failed(prefix, took_s, now)
                metrics.warm_cut.labels("failed").inc()
            case _:
                warming.stopped(prefix, took_s, now)
                metrics.warm_cut.labels("real_work").inc()
        _log.debug("warmed", kind=prefix.kind, outcome=call.outcome, seconds=round(took_s, 3))

    def _count(self, kind: Kind, usage: common_pb2.Usage | None) -> None:
        self._metrics.warmed_prefixes.labels(kind).inc()
        if usage is not None:
            self._metrics.warmed_tokens.inc(max(0, usage.prompt_tokens - usage.cached_prompt_tokens))


class _Call(EngineSink):
    """One warming call: the engine's sink, which keeps nothing of what it says."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.outcome: Outcome = "stopped"
        self.usage: common_pb2.Usage | None = None
        self._engine: EngineCall | None = None

    def run(self, backend: Backend, request: common_pb2.GenerationRequest) -> None:
        self._engine = backend.call(request, self)

    def stop(self, outcome: Outcome = "stopped") -> None:
        """At once; nothing where it is over."""
        if not self.over.is_set():
            self._end(outcome)
            if self._engine is not None:
                self._engine.abort()

    def started(self) -> None:
        """Of no interest."""

    def piece(
        self,
        choice: int,
        text: str,
        *,
        raw_delta: bytes = b"",
        finish_reason: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> None:
        """Of no interest."""

    def ended(self, usage: common_pb2.Usage | None) -> None:
        self.usage = usage
        self._end("done")

    def failed(self, error: StreamwayError) -> None:
        self._end("failed")

    def _end(self, outcome: Outcome) -> None:
        if not self.over.is_set():
            self.outcome = outcome
            self.over.set()
