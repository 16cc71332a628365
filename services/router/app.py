"""Wires the router: the only place that constructs."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass

import structlog
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from services.router.core.context_table import ContextTable
from services.router.core.fleet import Fleet
from services.router.core.flights import Flights
from services.router.core.key_table import KeyTable
from services.router.core.ledger import Ledger
from services.router.core.opinions import Opinions
from services.router.core.strategy import Strategy, StrategyOptions, make_strategy
from services.router.interfaces import Opener
from services.router.io.admitting import Admitting
from services.router.io.arrivals import Arrivals
from services.router.io.attaching import Attaching
from services.router.io.beside import Beside
from services.router.io.books import Books
from services.router.io.breaker_board import BreakerBoard
from services.router.io.cache_client import CacheClient
from services.router.io.caching import Caching
from services.router.io.context_dictionaries import ContextDictionaries
from services.router.io.context_store import ContextStore
from services.router.io.contexts import Contexts
from services.router.io.joining import Joining
from services.router.io.journal import Journal
from services.router.io.locating import Locator
from services.router.io.metering import Metering
from services.router.io.placing import Placing
from services.router.io.probe import Probe
from services.router.io.quotas import Quotas
from services.router.io.recalling import Recalling
from services.router.io.reclaiming import Reclaiming
from services.router.io.records import Records
from services.router.io.registry import Registry
from services.router.io.relaying import RelayServicer
from services.router.io.repeating import Repeating
from services.router.io.resolving import Resolving
from services.router.io.second_ends import SecondEnds
from services.router.io.session_notes import SessionNotes
from services.router.io.shared_flights import SharedFlights
from services.router.io.sources import LeaseSource, StaticSource
from services.router.io.spanning import Spanning
from services.router.metrics import RouterMetrics
from services.router.servicer import RouterServicer
from services.router.settings import RouterSettings
from streamway.attach import AttachPool
from streamway.auth import watch_tenancy
from streamway.config import SharedSettings
from streamway.following import ReaderPorts
from streamway.journal import Follower
from streamway.lanes.writer import RECORD_TTL_MS
from streamway.memory import MemoryWatch, Yielding
from streamway.models.watching import ModelsWatch
from streamway.rpc import MeshServer, MountedService
from streamway.runtime.clock import Clock, SystemClock
from streamway.runtime.start import StartError
from streamway.runtime.tasks import TaskScope
from streamway.telemetry.assembly import Telemetry
from streamway.telemetry.operations import OperationsServer
from streamway.v1 import common_pb2, inference_pb2_grpc, router_pb2_grpc
from streamway.valkey.connection import connect
from streamway.valkey.leases import Lease
from streamway.valkey.link import Link

_log = structlog.get_logger("router")
_LAST_WORDS_S = 1.0
# A blocking read lasts up to five seconds.
_BLOCKING_REPLY_S = 10.0
_LINKED_S = 5.0
# What idle contexts give up of their memory at each look, while it will be full within ten minutes.
_CONTEXTS_SOON_FULL = 0.1


@dataclass(slots=True)
class _Parts:
    """What `start` makes, in the order it is made."""

    registry: Registry
    cache: CacheClient
    books: Books
    admitting: Admitting
    servicer: RouterServicer
    server: MeshServer
    lease: Lease
    contexts: Contexts


class RouterApp:
    """One router process."""

    def __init__(
        self,
        settings: RouterSettings,
        shared: SharedSettings,
        tracing: TracerProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._shared = shared
        self._clock = clock or SystemClock()
        self._metrics_registry = CollectorRegistry()
        self._tenants = watch_tenancy(settings.host, shared, self._metrics_registry)
        self._models = ModelsWatch(shared, self._metrics_registry)
        self._memory = MemoryWatch(settings.memory_watermark, self._metrics_registry)
        self._metrics = RouterMetrics(self._metrics_registry)
        self._telemetry = Telemetry("router", settings.id, shared, self._metrics_registry, provider=tracing)
        self._scope = TaskScope("router")
        self._stack = contextlib.AsyncExitStack()
        self._loops: list[asyncio.Task[None]] = []
        self._parts: _Parts | None = None
        self._serving = False
        self._draining = False
        self.operations_address = ""

    @property
    def address(self) -> str:
        """Where others reach it, "host:port"; known after `start`."""
        if self._settings.advertise:
            return self._settings.advertise
        return self._parts.server.address if self._parts is not None else ""

    @property
    def in_flight(self) -> int:
        """Generations that were dispatched and whose end is not known yet."""
        return len(self._parts.books) if self._parts is not None else 0

    @property
    def deciding(self) -> int:
        """Requests that are neither taken nor refused yet."""
        return self._parts.admitting.opening if self._parts is not None else 0

    @property
    def caches_connected(self) -> int:
        """Caches that can be asked now."""
        return self._parts.cache.connected if self._parts is not None else 0

    async def start(self) -> None:
        """Valkey, registry, cache, server, lease; ready last. Unwinds when a step fails."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def failed(self) -> None:
        """Returns or raises when a loop or the server has ended."""
        parts = self._made()
        server = self._scope.spawn(parts.server.wait(), "server")
        done, _ = await asyncio.wait([*self._loops, server], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def drain(self) -> None:
        """Not ready, no new generations; what is relayed may go on within the grace. What edges read at workers is not ours."""
        parts = self._made()
        self._draining = parts.admitting.draining = True
        await parts.server.serving(False)
        with contextlib.suppress(Exception):
            await parts.lease.renew()
        _log.info("draining", grace_s=self._settings.drain_grace_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_grace_s):
                await parts.servicer.quiet()
        parts.servicer.going_away()
        await parts.lease.release()
        await parts.server.stop(_LAST_WORDS_S)

    async def close(self) -> None:
        """Releases everything, in reverse order."""
        await self._stack.aclose()

    async def _start(self) -> None:
        self._stack.callback(self._telemetry.close)
        settings, shared, clock, metrics = self._settings, self._shared, self._clock, self._metrics
        url = shared.valkey_url.get_secret_value()
        valkey = await connect(url)
        self._stack.push_async_callback(valkey.aclose)
        self._stack.push_async_callback(self._scope.close)
        link, blocking = Link(url, clock), Link(url, clock, reply_timeout_s=_BLOCKING_REPLY_S)
        source: LeaseSource | StaticSource = LeaseSource(link, clock)
        if settings.workers:
            source = StaticSource(settings.workers, shared, link, clock)
            self._stack.push_async_callback(source.close)
        probe, ledger, strategy = Probe(shared), Ledger(settings.stale_report_s * 1000), _strategy(settings)
        registry = Registry(
            source,
            ledger,
            Fleet(ledger, settings.queue_limit, settings.prefill_ms),
            strategy,
            probe,
            clock,
            metrics,
            poll_s=settings.poll_s,
            keep_s=settings.keep_workers_s,
            most_workers=settings.most_workers,
        )
        pool = AttachPool(
            shared,
            self._scope,
            reattach_s=settings.reattach_s,
            refused_s=settings.refused_s,
            silence_s=settings.silence_s,
        )
        self._stack.push_async_callback(pool.close)
        cache = CacheClient(
            settings.caches,
            valkey,
            shared,
            self._scope,
            clock,
            metrics,
            self._telemetry.hops,
            budget_s=settings.cache_budget_ms / 1000,
            semantic_budget_s=settings.cache_semantic_budget_ms / 1000,
            poll_s=settings.poll_s,
        )
        self._stack.push_async_callback(cache.close)
        follower = Follower(blocking, link)
        live_ttl_ms, finished_ttl_ms = (
            int(ttl_s * 1000) for ttl_s in (settings.channel_live_ttl_s, settings.channel_finished_ttl_s)
        )
        journal = Journal(link, clock, settings.dispatch_timeout_s, live_ttl_ms, finished_ttl_ms)
        breakers = BreakerBoard(
            settings.breaker_options,
            link,
            clock,
            metrics,
            random.random,
            models=lambda: {served.name for worker in registry.all() for served in worker.models},
            workers=lambda: {worker.id for worker in registry.all()},
        )
        reclaiming = Reclaiming(
            valkey,
            link,
            registry,
            strategy,
            breakers,
            probe,
            clock,
            metrics,
            settings.id,
            lease_s=settings.worker_lease_s,
            finished_ttl_ms=finished_ttl_ms,
        )
        quotas = Quotas(journal, clock, metrics, lease_s=settings.quota_lease_s, share=settings.quota_share)
        contexts = self._contexts(journal)
        shared_flights = SharedFlights(journal, clock, settings.id, settings.flight_share_ms / 1000)
        charges = (quotas, contexts)
        books = Books(
            *(
                ledger,
                pool,
                cache,
                clock,
                metrics,
                settings.cache_prompt_limit_bytes,
                reclaiming.hint,
                charges,
                breakers,
                SecondEnds(journal, registry, pool, breakers, charges, self._scope, clock, settings.takeover_wait_s),
            ),
            *(Flights(settings.flights, settings.flight_followers), shared_flights, self._scope),
        )
        locator = Locator(journal, registry, books, clock, self._relayed_at, reclaiming.hint, settings.id)
        ports = ReaderPorts(pool, link, locator, self._scope, follower, takeover_wait_s=settings.takeover_wait_s)
        notes = SessionNotes(link, clock, ttl_s=settings.session_ttl_s, budget_s=settings.session_recall_ms / 1000)
        placing = Placing(
            *(registry, strategy, notes, journal, locator, books, clock, metrics, breakers),
            expected_output_tokens=settings.expected_output_tokens,
        )
        admitting = self._admitting(
            *(
                placing,
                registry,
                cache,
                Records(valkey, self._scope, clock),
                quotas,
                journal,
                locator,
                books,
                shared_flights,
                contexts,
            )
        )
        servicer = RouterServicer(
            Spanning(admitting, self._telemetry.hops),
            registry,
            books,
            locator,
            ports,
            self._scope,
            metrics,
            self._models,
            self._tenants,
            contexts,
            cache,
            Opinions(settings.feedback_per_minute),
            clock,
            outbox_limit_bytes=settings.outbox_limit_bytes,
            gather_s=shared.gather_late_ms / 1000,
            heartbeat_s=settings.heartbeat_s,
            credentials_check_s=settings.credentials_check_s,
        )
        server = self._server(servicer, locator, registry, ports)
        lease = Lease(valkey, clock, "router", settings.id, lambda: self._lease_fields(journal))
        self._parts = _Parts(registry, cache, books, admitting, servicer, server, lease, contexts)
        self._loops = [self._scope.spawn(link.run(), "link"), self._scope.spawn(blocking.run(), "link-blocking")]
        await _linked(link)
        await registry.refresh()
        await cache.refresh()
        await self._serve(server)
        runs = {"follower": follower.run(), "registry": registry.run(), "caches": cache.run(), "lease": lease.hold()}
        runs |= {"tenants": self._tenants.run(), "quotas": quotas.run(), "memory": self._memory.run()}
        runs |= {
            "reclaiming": reclaiming.run(),
            "breakers": breakers.run(),
            "models": self._models.run(),
            "review": servicer.review(),
            "flights": shared_flights.run(books.flights),
            "contexts": contexts.run(),
            "process": self._telemetry.run(),
            "arrivals": Arrivals(link, registry, strategy, clock, settings.poll_s, settings.session_ttl_s).run(),
        }
        self._loops += [self._scope.spawn(run, name) for name, run in runs.items()]
        self._stack.push_async_callback(lease.release)
        await server.serving(True)
        self._serving = True
        _log.info("router_ready", id=settings.id, address=self.address)

    def _admitting(
        self,
        placing: Placing,
        registry: Registry,
        cache: CacheClient,
        records: Records,
        quotas: Quotas,
        journal: Journal,
        locator: Locator,
        books: Books,
        shared_flights: SharedFlights,
        contexts: Contexts,
    ) -> Admitting:
        """How a generation is opened, from Admitting to Placing; see `interfaces`."""
        settings, clock = self._settings, self._clock
        limit_bytes = settings.cache_prompt_limit_bytes
        joining: Opener = placing
        if settings.flight_followers:
            joining = Joining(placing, books, shared_flights, journal, locator, self._metrics, limit_bytes)
        beside = Beside(
            *(cache, journal, books, self._scope, self._metrics, settings.id),
            budget_s=settings.cache_semantic_beside_ms / 1000,
            waited_s=settings.cache_semantic_budget_ms / 1000,
        )
        caching = Caching(joining, cache, beside, records, journal, self._metrics, limit_bytes)
        resolving = Resolving(caching, self._models, registry, clock, self._metrics)
        metering = Metering(resolving, quotas, settings.expected_output_tokens)
        recalling = Recalling(
            *(metering, contexts, locator, clock),
            max_message_bytes=self._shared.max_message_bytes,
            read_body_bytes=limit_bytes,
        )
        table = KeyTable(settings.idempotency_keys, RECORD_TTL_MS / 1000, books.__contains__)
        attaching = Attaching(recalling, journal, locator, table, clock, settings.idempotency_ttl_s)
        return Admitting(
            Repeating(attaching, books, locator),
            *(books, clock, self._metrics),
            most_generations=settings.max_generations,
            max_message_bytes=self._shared.max_message_bytes,
            read_body_bytes=settings.cache_prompt_limit_bytes,
            unread_s=settings.unread_s,
            durability=common_pb2.Durability.Value(f"DURABILITY_{settings.durability.upper()}"),
            tenants=self._tenants,
            memory=self._memory,
            baggage_keys=self._shared.baggage_keys,
        )

    def _contexts(self, journal: Journal) -> Contexts:
        settings, clock, metrics = self._settings, self._clock, self._metrics
        store = ContextStore(journal, clock, keep_s=settings.context_keep_s, most=settings.contexts_per_tenant)
        table = ContextTable(
            *(settings.contexts, settings.context_memory_bytes, self._tenants.buffered_bytes),
            lambda why: metrics.context_evictions.labels(why).inc(),
        )
        room = Yielding(settings.context_memory_bytes)

        def give_way() -> None:
            now = clock.monotonic()
            table.bound(room.look(self._memory.pressed), now)
            if self._memory.soon:
                table.give_up_largest(_CONTEXTS_SOON_FULL, now)

        self._memory.follow(give_way)
        dictionaries = ContextDictionaries(
            *(journal, table, clock, metrics),
            size_bytes=settings.context_dictionary_bytes,
            keep_s=settings.context_keep_s,
            limit_bytes=settings.context_limit_bytes,
        )
        return Contexts(
            *(store, table, dictionaries, journal, self._scope, clock, metrics),
            limit_bytes=settings.context_limit_bytes,
            wait_s=settings.context_wait_s,
        )

    def _server(self, servicer: RouterServicer, locator: Locator, registry: Registry, ports: ReaderPorts) -> MeshServer:
        settings = self._settings
        add = router_pb2_grpc.add_RouterServiceServicer_to_server
        mounted = [MountedService("streamway.v1.RouterService", servicer, add)]
        if settings.relays:
            relay = RelayServicer(
                *(locator, registry, ports, self._scope, settings.id),
                outbox_limit_bytes=settings.outbox_limit_bytes,
                gather_s=self._shared.gather_late_ms / 1000,
                heartbeat_s=settings.attach_heartbeat_s,
                most_subscriptions=settings.max_generations,
            )
            add_relay = inference_pb2_grpc.add_InferenceServiceServicer_to_server
            mounted.append(MountedService("streamway.v1.InferenceService", relay, add_relay))
        interceptors = self._telemetry.interceptors()
        return MeshServer(
            settings.host, settings.port, self._shared, mounted, telemetry=interceptors, tenants=self._tenants
        )

    async def _serve(self, server: MeshServer) -> None:
        await server.start()
        self._stack.push_async_callback(server.stop, 0)
        port = self._settings.operations_port
        if port is None:
            port = int(server.address.rpartition(":")[2]) + 1000 if self._settings.port else 0
        if port > 65535:
            raise StartError(f"operations port {port} does not exist; set STREAMWAY_ROUTER_OPERATIONS_PORT")
        operations = OperationsServer(
            self._settings.operations_host, port, self._metrics_registry, self._ready, self._telemetry.hops
        )
        await operations.start()
        self.operations_address = operations.address
        self._stack.push_async_callback(operations.close)

    def _relayed_at(self) -> str:
        return self.address if self._settings.relays else ""

    def _lease_fields(self, journal: Journal) -> dict[str, str]:
        return {
            "address": self.address,
            "operations_port": self.operations_address.rpartition(":")[2],
            "draining": "1" if self._draining else "0",
            "generations": str(self.in_flight),
            # The lease has a connection of its own, which may be back sooner than the one that channels are written on.
            "store_away": "1" if journal.away else "0",
        }

    def _ready(self) -> str:
        if self._draining:
            return "draining"
        if not self._serving:
            return "starting"
        # Without Valkey work goes straight to the workers that are known.
        registry = self._made().registry
        return "" if registry.readable or registry.all() else "Valkey does not answer"

    def _made(self) -> _Parts:
        if self._parts is None:
            raise RuntimeError("the router has not been started")
        return self._parts


async def _linked(link: Link) -> None:
    """Valkey has answered already: the first look at the workers can wait for the link."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINKED_S):
            await link.session()


def _strategy(settings: RouterSettings) -> Strategy:
    options = StrategyOptions(
        vnodes=settings.vnodes,
        factor=settings.load_factor,
        floor=settings.load_floor,
        most_sessions=settings.sessions,
        session_ttl_s=settings.session_ttl_s,
        walk_home_ms=settings.walk_home_ms,
        moves_per_s=settings.moves_per_s,
        prefix_blocks=settings.prefix_blocks,
    )
    return make_strategy(settings.strategy, options)
