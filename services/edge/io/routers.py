"""The routers that this edge knows, and a stream to each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio
import structlog
from redis.exceptions import RedisError

from services.edge.core.placement import choose_router
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.router_link import RouterLink
from streamway.config.shared import SharedSettings
from streamway.errors import (
    GenerationNotFound,
    GoingAway,
    RouterUnavailable,
    StoreUnavailable,
    StreamwayError,
    from_rpc_error,
)
from streamway.following import Located, Place
from streamway.rpc import SILENT
from streamway.runtime.clock import Clock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import cache_pb2, common_pb2, router_pb2
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases

T = TypeVar("T")

_log = structlog.get_logger("edge")

_LOOK_S = 1.0
# A router that lost its lease is kept this long while its stream lives: the store may be what is away.
_KEEP_S = 10.0
_MODELS_FRESH_S = 1.0
_ASK_TIMEOUT_S = 3.0
_ENDED = (
    router_pb2.GENERATION_STATE_FINISHED,
    router_pb2.GENERATION_STATE_FAILED,
    router_pb2.GENERATION_STATE_CANCELLED,
)


class Routers:
    """Links to all routers: a static list, or those with a lease. `batch_done` is called after each batch of events."""

    def __init__(
        self,
        static: list[str],
        valkey: Valkey | None,
        shared: SharedSettings,
        scope: TaskScope,
        clock: Clock,
        metrics: EdgeMetrics,
        *,
        answer_s: float,
        batch_done: Callable[[], None],
    ) -> None:
        self._valkey = valkey
        self._shared = shared
        self._scope = scope
        self._clock = clock
        self._metrics = metrics
        self._answer_s = answer_s
        self._came_up: Callable[[], None] = batch_done
        self.batch_done = batch_done
        self._links: dict[str, RouterLink] = {}
        self._missing_since: dict[str, float] = {}
        self._models: list[router_pb2.Model] = []
        self._models_problem: RouterUnavailable | None = None
        self._models_until = 0.0
        self._models_lock = asyncio.Lock()
        self._static = static
        for address in static:
            self._add(address)

    def when_up(self, call: Callable[[], None]) -> None:
        """`call` is called whenever a router can take generations."""
        self._came_up = call

    @property
    def ready(self) -> bool:
        """At least one router can take generations."""
        return any(link.ready for link in self._links.values())

    @property
    def linked(self) -> list[str]:
        """Addresses of those that can take generations."""
        return [address for address, link in self._links.items() if link.ready]

    def pick(self, session: str) -> RouterLink | None:
        """The router for a session among those that are up; None when none is."""
        up = [address for address, link in self._links.items() if link.ready]
        return self._links.get(choose_router(session, up))

    def link_up(self, link: RouterLink) -> None:
        """A link can take generations."""
        _log.info("router_linked", router=link.address)
        self._came_up()

    async def follow_leases(self) -> None:
        """Keeps the links as the leases are, until cancelled. An unreachable store leaves them as they are."""
        if self._valkey is None:
            await asyncio.Event().wait()
            return
        while True:
            try:
                leases = await list_leases(self._valkey, self._clock, "router")
            except (RedisError, OSError) as problem:
                _log.warning("routers_not_listed", problem=type(problem).__name__)
            else:
                await self._follow({fields["address"]: fields for fields in leases.values() if "address" in fields})
            await asyncio.sleep(_LOOK_S)

    async def models(self) -> list[router_pb2.Model]:
        """The models served now, at most a second old. Raises RouterUnavailable when no router answers.

        The failure is a second old at most too: a thousand clients that ask while no router answers wait once, together.
        """
        async with self._models_lock:
            if self._clock.monotonic() >= self._models_until:
                try:
                    self._models, self._models_problem = await self._ask_models(), None
                except RouterUnavailable as problem:
                    self._models_problem = problem
                self._models_until = self._clock.monotonic() + _MODELS_FRESH_S
            if self._models_problem is not None:
                raise RouterUnavailable
            return self._models

    async def model_names(self, within_s: float) -> list[str]:
        """Names of the models as far as they can be known in this time; of the last answer where there is no new one."""
        try:
            async with asyncio.timeout(within_s):
                await self.models()
        except (TimeoutError, RouterUnavailable):
            pass
        return [model.name for model in self._models]

    async def locate(
        self, generation: str, tenant: str, *, wait_s: float, above_epoch: int, lost_worker: str
    ) -> Located:
        """Where a generation is now; see `streamway.following.Locate`."""
        request = router_pb2.GetGenerationRequest(
            generation=generation,
            tenant=tenant,
            wait_ms=int(wait_s * 1000),
            above_epoch=above_epoch,
            lost_worker=lost_worker,
        )
        found = await self._ask_all(generation, lambda link: link.locate(request, wait_s + _ASK_TIMEOUT_S))
        place = Place(found.worker, found.source) if found.worker and found.source else None
        return Located(
            place,
            epoch=found.epoch,
            ended=found.state in _ENDED,
            durable=found.durability != common_pb2.DURABILITY_OFF,
            worker=found.worker,
        )

    async def cancel(self, generation: str, tenant: str) -> router_pb2.GenerationState.ValueType:
        """Stops a generation wherever it is; its state before. Raises GenerationNotFound, RouterUnavailable and others."""
        request = router_pb2.CancelRequest(generation=generation, tenant=tenant)
        answer: router_pb2.CancelResponse = await self._ask_all(
            generation, lambda link: _answer(link, link.stub.Cancel, request)
        )
        return answer.state

    async def forget_context(self, id_: str, tenant: str) -> bool:
        """Deletes a kept conversation; False: there was none. Raises RouterUnavailable and others."""
        request = router_pb2.ForgetContextRequest(id=id_, tenant=tenant)
        answer = await self._ask(id_, lambda link: _answer(link, link.stub.ForgetContext, request))
        return bool(answer.found)

    async def give_feedback(self, entry: str, tenant: str, *, good: bool) -> router_pb2.GiveFeedbackResponse:
        """Passes on an opinion on a cached answer. Raises TooMuchFeedback, RouterUnavailable and others."""
        request = router_pb2.GiveFeedbackRequest(entry=entry, tenant=tenant, good=good)
        # By the tenant: its opinions are counted at one router as long as that is there.
        answer: router_pb2.GiveFeedbackResponse = await self._ask(
            tenant, lambda link: _answer(link, link.stub.GiveFeedback, request)
        )
        return answer

    async def cache_stats(self, tenant: str) -> cache_pb2.StatsResponse | None:
        """What the cache says of a tenant; None where none answers. Raises RouterUnavailable."""
        asked = router_pb2.GetCacheStatsRequest(tenant=tenant)
        answer = await self._ask_any("GetCacheStats", asked)
        return answer.stats if answer.HasField("stats") else None

    async def close(self) -> None:
        """Ends every link."""
        for link in self._links.values():
            await link.close()
        self._links.clear()

    def _add(self, address: str) -> None:
        self._links[address] = RouterLink(
            address, self._shared, self._scope, self, self._metrics, answer_s=self._answer_s
        )

    async def _follow(self, found: dict[str, dict[str, str]]) -> None:
        now = self._clock.monotonic()
        for address, fields in found.items():
            self._missing_since.pop(address, None)
            if address not in self._links:
                self._add(address)
            if fields.get("draining") == "1":
                self._links[address].leaving = True
        for address, link in list(self._links.items()):
            if address in found:
                continue
            since = self._missing_since.setdefault(address, now)
            if not link.live or (now - since > _KEEP_S and not len(link)):
                del self._links[address]
                del self._missing_since[address]
                await link.close()

    async def _ask_all(self, generation: str, question: Callable[[RouterLink], Awaitable[T]]) -> T:
        """A question about a generation, to one router after the other until one knows it: what began while the store was away
        is known to the router that took it alone. Raises GenerationNotFound where none does."""
        return await self._ask(generation, question, unless=(GenerationNotFound,))

    async def _ask(
        self,
        id_: str,
        question: Callable[[RouterLink], Awaitable[T]],
        *,
        unless: tuple[type[StreamwayError], ...] = (),
    ) -> T:
        """A question about one thing, to its router or to another when that one can't answer, or refuses with one of `unless`."""
        refused: StreamwayError = RouterUnavailable()
        links = [link for link in self._links.values() if link.live]
        while links:
            address = choose_router(id_, [link.address for link in links])
            link = self._links.get(address)
            links = [other for other in links if other.address != address]
            if link is None:
                continue
            try:
                return await question(link)
            except (RouterUnavailable, GoingAway, StoreUnavailable) as problem:
                _log.warning("router_not_asked", router=address, problem=problem.name)
            except unless as problem:
                refused = problem
        raise refused

    async def _ask_models(self) -> list[router_pb2.Model]:
        return list((await self._ask_any("ListModels", router_pb2.ListModelsRequest())).models)

    async def _ask_any(self, method: str, request: object) -> Any:
        """What the first router says that can answer this at all."""
        for link in [link for link in self._links.values() if link.live]:
            try:
                return await getattr(link.stub, method)(request, metadata=link.metadata, timeout=_ASK_TIMEOUT_S)
            except grpc.aio.AioRpcError as problem:
                _log.warning("router_not_asked", router=link.address, problem=from_rpc_error(problem).name)
        raise RouterUnavailable


async def _answer(link: RouterLink, method: Any, request: object) -> Any:
    """What this router says to a unary call. Raises RouterUnavailable where another one may answer, and what it refuses with."""
    try:
        return await method(request, metadata=link.metadata, timeout=_ASK_TIMEOUT_S)
    except grpc.aio.AioRpcError as problem:
        if problem.code() in SILENT:
            raise RouterUnavailable from None
        raise from_rpc_error(problem) from None
