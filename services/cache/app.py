"""Puts the cache together."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from services.cache.core.books import Books
from services.cache.core.entries import Entries
from services.cache.core.eviction import make_eviction
from services.cache.core.inserts import InsertLimits
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.partitions import Partitions
from services.cache.core.semantic.vouching import Vouching
from services.cache.core.store import ExactCache, Limits
from services.cache.core.tags import caller_of
from services.cache.interfaces import Encoder
from services.cache.io import indexes
from services.cache.io.answers import Answers
from services.cache.io.encoders import make_encoder
from services.cache.io.encoding import Encoding
from services.cache.io.index_files import IndexFiles
from services.cache.io.judge import Judge
from services.cache.io.likeness import Likeness
from services.cache.io.persistence import StoreOptions
from services.cache.io.search_thread import SearchThread
from services.cache.io.searching import Searching
from services.cache.io.stored_cache import StoredCache
from services.cache.io.upkeep import Upkeep
from services.cache.metrics import CacheMetrics, IndexFileMetrics
from services.cache.servicer import CacheServicer
from services.cache.settings import CacheSettings
from streamway.auth import watch_tenancy
from streamway.config import SharedSettings
from streamway.memory import MemoryWatch, Yielding
from streamway.models.watching import ModelsWatch
from streamway.rpc import MeshServer, MountedService
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_secret_id
from streamway.runtime.start import StartError
from streamway.runtime.tasks import TaskScope
from streamway.telemetry.assembly import Telemetry
from streamway.telemetry.operations import OperationsServer
from streamway.v1 import cache_pb2_grpc
from streamway.valkey.connection import Valkey, connect
from streamway.valkey.leases import Lease

_log = structlog.get_logger("cache")
_NAME = "streamway.v1.CacheService"


class CacheApp:
    """One cache process."""

    def __init__(self, settings: CacheSettings, shared: SharedSettings) -> None:
        clock = SystemClock()
        self._settings = settings
        self._shared = shared
        self._clock = clock
        self._scope = TaskScope("cache")
        self._encoder = make_encoder(settings)
        registry = self._registry = CollectorRegistry()
        self._tenants = watch_tenancy(settings.host, shared, registry)
        self._models = ModelsWatch(shared, registry)
        # Jitter needs no secret randomness; entry ids do.
        entries = Entries(
            *(settings.limit_bytes, settings.tenant_limit_bytes, random.random, new_secret_id),
            partial(make_eviction, settings.eviction),
            self._entry_removed,
            bound_of=self._tenants.buffered_bytes,
        )
        limits = Limits(settings.ttl_s, settings.most_ttl_s, settings.answer_limit_bytes, settings.request_limit_bytes)
        self._cache = ExactCache(entries, limits, clock.monotonic)
        self._memory = MemoryWatch(settings.memory_watermark, registry)
        room = Yielding(settings.limit_bytes)
        self._memory.follow(lambda: self._cache.bound(room.look(self._memory.pressed)))
        self._telemetry = Telemetry("cache", settings.node, shared, registry)
        self._books = Books(
            settings.prices,
            settings.pay_terms,
            self._cache.peek,
            lambda: self._models.routing.prices,
            enforced=settings.semantic_must_pay,
        )
        self._answers = Answers(
            self._cache,
            self._scope,
            InsertLimits(settings.inserts_per_minute, settings.user_inserts_per_minute),
            self._books,
            clock.monotonic,
        )
        servicer = CacheServicer(
            self._answers, CacheMetrics(registry, self._cache, self._answers), clock.monotonic, self._telemetry.hops
        )
        self._server = MeshServer(
            settings.host,
            settings.port,
            shared,
            [MountedService(_NAME, servicer, cache_pb2_grpc.add_CacheServiceServicer_to_server)],
            telemetry=self._telemetry.interceptors(),
            tenants=self._tenants,
        )
        self._operations = OperationsServer(
            settings.operations_host, settings.operations_port, registry, lambda: self._waiting, self._telemetry.hops
        )
        self._waiting = "starting"
        self._search_thread = SearchThread()
        self._valkey: Valkey | None = None
        self._lease: Lease | None = None
        self._stored: StoredCache | None = None

    @property
    def address(self) -> str:
        """Where others reach it, "host:port"."""
        return self._settings.advertise or self._server.address

    async def start(self) -> None:
        """Connects, listens, registers, and only then says that it serves."""
        self._valkey = await connect(self._shared.valkey_url.get_secret_value())
        if self._encoder is not None:
            await self._compare_with(self._encoder)
        if self._settings.store_limit_bytes:
            await self._keep_in_store()
        await self._server.start()
        await self._operations.start()
        self._lease = Lease(self._valkey, self._clock, "cachenode", self._settings.node, self._lease_fields)
        await self._lease.renew()
        await self._server.serving(True)
        self._waiting = ""
        _log.info("cache_ready", address=self.address, limit_bytes=self._settings.limit_bytes)

    async def failed(self) -> None:
        """Ends only with a part that must not."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep(), name="sweep")
            group.create_task(self._tenants.run(), name="tenants")
            group.create_task(self._models.run(), name="models")
            group.create_task(self._memory.run(), name="memory")
            group.create_task(self._telemetry.run(), name="process")
            if self._stored is not None:
                group.create_task(self._stored.failed(), name="store")
            if self._lease is not None:
                group.create_task(self._lease.hold(), name="lease")

    async def drain(self) -> None:
        """Takes itself out of the books, then lets running calls end."""
        self._waiting = "shutting down"
        await self._server.serving(False)
        if self._lease is not None:
            await self._lease.release()
        await self._server.stop(self._settings.drain_grace_s)
        if self._stored is not None:
            await self._stored.settle(self._settings.drain_grace_s)

    async def close(self) -> None:
        """Releases everything."""
        await self._server.stop(0)
        await self._operations.close()
        await self._scope.close()
        self._search_thread.close()
        if self._encoder is not None:
            await self._encoder.close()
        if self._valkey is not None:
            await self._valkey.aclose()
        self._telemetry.close()

    async def _compare_with(self, encoder: Encoder) -> None:
        settings = self._settings
        encoding = Encoding(encoder, self._scope, most_waiting=settings.encoder_most_waiting)
        await encoding.check()
        partitions = Partitions()
        searching = Searching(partitions, self._search_thread, self._scope)
        files = self._index_files()
        Upkeep(
            partitions,
            self._search_thread,
            indexes.build,
            settings.index_limits,
            self._scope,
            files=files,
            encoder=encoding.name,
        )
        likeness = Likeness(
            encoding,
            searching,
            Judge(encoding, settings.semantic_same_answer),
            self._options_of,
            self._books,
            self._cache.text,
            self._answers.evict,
            vouching=Vouching(self._maker if settings.semantic_vouched else None),
            timeout_s=settings.encoder_timeout_s,
            clock=self._clock.monotonic,
        )
        self._answers.likeness = likeness

    async def _keep_in_store(self) -> None:
        settings = self._settings
        options = StoreOptions(settings.store_limit_bytes, settings.store_wait_s, settings.most_ttl_s)
        url = self._shared.valkey_url.get_secret_value()
        self._stored = StoredCache(url, self._clock, options, self._cache, self._answers, self._scope)
        await self._stored.start()

    def _index_files(self) -> IndexFiles | None:
        folder = self._settings.index_folder
        if not folder:
            return None
        files = IndexFiles(Path(folder), indexes.read, self._settings.most_ttl_s)
        try:
            files.tidy()
        except OSError as problem:
            raise StartError(f"STREAMWAY_CACHE_INDEX_FOLDER={folder}: {problem.strerror}") from problem
        IndexFileMetrics(self._registry, files)
        return files

    def _maker(self, tenant: str, entry_id: str) -> str:
        entry = self._cache.entries.peek(tenant, entry_id)
        return caller_of(entry.tags) if entry is not None else ""

    def _lease_fields(self) -> dict[str, str]:
        return {"address": self.address, "operations_port": self._operations.address.rpartition(":")[2]}

    def _options_of(self, tenant: str) -> SemanticOptions:
        known = self._tenants.tenancy.tenant(tenant)
        options = self._settings.semantic_options
        return options if known is None else options.of(known.semantic_threshold, known.semantic_rules_off)

    def _entry_removed(self, entry_id: str) -> None:
        self._answers.forget(entry_id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_interval_s)
            if removed := self._cache.sweep():
                _log.debug("expired_entries_removed", count=removed)
            if self._answers.persistence is not None:
                await self._answers.persistence.sweep()
