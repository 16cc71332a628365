"""The gRPC shell of the cache. Tenants come from the authenticated caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from services.cache.core.query import Query
from services.cache.core.target import Target
from services.cache.io.answers import Answers
from services.cache.io.replies import Replies
from services.cache.metrics import CacheMetrics
from streamway import cachestatus
from streamway.auth import Identity
from streamway.errors import InvalidArgument, StreamwayError, to_status
from streamway.rpc import caller
from streamway.runtime.tasks import TaskScope
from streamway.telemetry.context import recorded
from streamway.telemetry.facts import Facts
from streamway.telemetry.hops import Hop, Hops
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2

MOST_CALLS: Final = 1000
# Replies go out in pieces of this many, so that a large batch does not hold the first ones back, nor the loop.
_PIECE: Final = 50


class CacheServicer(cache_pb2_grpc.CacheServiceServicer):
    """Serves one cache."""

    def __init__(self, answers: Answers, metrics: CacheMetrics, clock: Callable[[], float], hops: Hops) -> None:
        self._answers = answers
        self._hops = hops
        self._metrics = metrics
        self._now = clock

    async def Exchange(  # noqa: N802
        self, request_iterator: AsyncIterator[cache_pb2.ExchangeRequest], context: Any
    ) -> AsyncIterator[cache_pb2.ExchangeResponse]:
        replies = Replies()
        async with TaskScope("exchange") as scope:
            scope.spawn(self._read(caller(), request_iterator, replies, scope), "read")
            while batch := await replies.take(_PIECE):
                yield cache_pb2.ExchangeResponse(replies=batch)

    async def Lookup(self, request: cache_pb2.LookupRequest, context: Any) -> cache_pb2.LookupResponse:  # noqa: N802
        found = self._lookup(caller(), request)
        reply = await self._further(found, request) if isinstance(found, Query) else found
        context.set_trailing_metadata(tuple(_block(reply).items()))
        return reply

    async def Store(self, request: cache_pb2.StoreRequest, context: Any) -> cache_pb2.StoreResponse:  # noqa: N802
        return self._store(caller(), request)

    async def Invalidate(self, request: cache_pb2.InvalidateRequest, context: Any) -> cache_pb2.InvalidateResponse:  # noqa: N802
        tenant = caller().tenant_for(request.tenant)
        kind = request.WhichOneof("target")
        if kind is None or not getattr(request, kind):
            raise InvalidArgument("target", "set one of entry, model, tag and all")
        removed = await self._answers.invalidate(tenant, request.entry if kind == "entry" else _target(request))
        return cache_pb2.InvalidateResponse(removed=removed)

    async def Feedback(self, request: cache_pb2.FeedbackRequest, context: Any) -> cache_pb2.FeedbackResponse:  # noqa: N802
        if not request.entry:
            raise InvalidArgument("entry", "is required")
        known = self._answers.feedback(caller().tenant_for(request.tenant), request.entry, request.good)
        return cache_pb2.FeedbackResponse(known=known)

    async def Explain(self, request: cache_pb2.ExplainRequest, context: Any) -> cache_pb2.ExplainResponse:  # noqa: N802
        return await self._answers.explain(self._tenant(caller(), request.request), request.request)

    async def Stats(self, request: cache_pb2.StatsRequest, context: Any) -> cache_pb2.StatsResponse:  # noqa: N802
        who = caller()
        tenant = None if who.mesh and not request.tenant else who.tenant_for(request.tenant)
        return self._answers.stats(tenant, details=request.details)

    async def _read(
        self, who: Identity, batches: AsyncIterator[cache_pb2.ExchangeRequest], replies: Replies, scope: TaskScope
    ) -> None:
        try:
            async for batch in batches:
                if len(batch.calls) > MOST_CALLS:
                    raise InvalidArgument("calls", f"{len(batch.calls)} in one batch, at most {MOST_CALLS}")
                replies.asked(len(batch.calls))
                for start in range(0, len(batch.calls), _PIECE):
                    began = self._now()
                    for call in batch.calls[start : start + _PIECE]:
                        found = self._reply(who, call)
                        if isinstance(found, Query):
                            scope.spawn(self._reply_alike(call, found, replies), "alike")
                        else:
                            replies.add(found)
                    self._metrics.batch_seconds.observe(self._now() - began)
                    # The first ones go out before the rest is looked up.
                    await asyncio.sleep(0)
        except Exception as problem:  # noqa: BLE001 — the stream ends with it
            replies.end(problem)
        else:
            replies.end()

    async def _reply_alike(self, call: cache_pb2.ExchangeCall, query: Query, replies: Replies) -> None:
        found = await self._further(query, call.lookup)
        replies.add(cache_pb2.ExchangeReply(id=call.id, lookup=found))

    async def _further(self, query: Query, lookup: cache_pb2.LookupRequest) -> cache_pb2.LookupResponse:
        with self._hop("cache.semantic", lookup.request) as hop:
            found = await self._answers.lookup_further(query, lookup.level)
            if hop is not None:
                hop.tell(_told(found))
        self._answers.books.replied(query.tenant, found)
        return found

    def _reply(self, who: Identity, call: cache_pb2.ExchangeCall) -> cache_pb2.ExchangeReply | Query:
        """One reply, or what the semantic level is asked first; a bad call fails alone, not the stream of all others."""
        try:
            kind = call.WhichOneof("call")
            if kind == "lookup":
                found = self._lookup(who, call.lookup)
                return found if isinstance(found, Query) else cache_pb2.ExchangeReply(id=call.id, lookup=found)
            if kind == "store":
                return cache_pb2.ExchangeReply(id=call.id, store=self._store(who, call.store))
            raise InvalidArgument("call", "set one of lookup and store")
        except StreamwayError as problem:
            return cache_pb2.ExchangeReply(id=call.id, error=common_pb2.Error(status=to_status(problem)))

    def _lookup(self, who: Identity, lookup: cache_pb2.LookupRequest) -> cache_pb2.LookupResponse | Query:
        tenant = self._tenant(who, lookup.request)
        with self._hop("cache.keyed", lookup.request) as hop:
            found = self._answers.lookup_exact(tenant, lookup.request, lookup.level)
            if hop is not None and not isinstance(found, Query):
                hop.tell(_told(found))
        if not isinstance(found, Query):
            self._answers.books.replied(tenant, found)
        return found

    @contextmanager
    def _hop(self, name: str, request: common_pb2.GenerationRequest) -> Iterator[Hop | None]:
        """Only of what is recorded: the router's row of the same lookup says as much, and lookups are many."""
        if not self._hops.recording or not recorded(request.traceparent):
            yield None
            return
        context = self._hops.context(request.traceparent)
        hop = self._hops.begin(name, context, request.generation, kind="server")
        try:
            yield hop
        finally:
            hop.end("answered")

    def _store(self, who: Identity, store: cache_pb2.StoreRequest) -> cache_pb2.StoreResponse:
        return self._answers.store(self._tenant(who, store.request), store.request, store.events, store.ttl_s)

    def _tenant(self, who: Identity, request: common_pb2.GenerationRequest) -> str:
        if not request.model:
            raise InvalidArgument("request.model", "is required")
        return who.tenant_for(request.tenant)


def _block(reply: cache_pb2.LookupResponse) -> dict[str, str]:
    """The status block of a hit is what the router makes of it in its events."""
    hit = cachestatus.hit_of(reply.answer) if reply.HasField("answer") else None
    return cachestatus.named(cachestatus.state_of(reply.outcome), hit)


def _target(request: cache_pb2.InvalidateRequest) -> Target:
    if request.model:
        return Target("purged_model", request.model)
    return Target("purged_tag", request.tag) if request.tag else Target("purged_all")


def _told(found: cache_pb2.LookupResponse) -> Facts:
    """For the span."""
    return {
        "streamway.cache.outcome": cache_pb2.CacheOutcome.Name(found.outcome).removeprefix("CACHE_OUTCOME_").lower()
    }
