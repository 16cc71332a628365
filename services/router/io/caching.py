"""Asks the cache before a worker, and beside it."""

from __future__ import annotations

from typing import Final

from services.router.core import events
from services.router.core.cacheable import Way, may_read, may_store, qualifies, way_of, young_enough
from services.router.core.pacing import gaps
from services.router.interfaces import AnswerCache, Ask, Opened, Opener
from services.router.io.beside import Beside
from services.router.io.journal import Journal
from services.router.io.records import Records
from services.router.metrics import RouterMetrics
from streamway.cachestatus import state_of
from streamway.errors import NotCached, NoWorkers, QueueFull, StoreUnavailable
from streamway.tenancy import SemanticLookup
from streamway.v1 import cache_pb2, common_pb2
from streamway.v1.cache_pb2 import LookupLevel

_HITS: Final = ("exact", "folded", "semantic")


class Caching:
    """An opener that answers from the cache what it can, and lets `inner` do the rest.

    A cache that says nothing in time is no reason to refuse: the request goes on as a miss.
    """

    def __init__(
        self,
        inner: Opener,
        cache: AnswerCache,
        beside: Beside,
        records: Records,
        journal: Journal,
        metrics: RouterMetrics,
        limit_bytes: int,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._beside = beside
        self._records = records
        self._journal = journal
        self._metrics = metrics
        self._limit_bytes = limit_bytes

    async def open(self, ask: Ask) -> Opened:
        """Raises what `inner` raises, and NotCached."""
        request = ask.request
        # Another model may have been tried before.
        ask.cache, ask.keep = "off", False
        if not qualifies(request, ask.body, self._limit_bytes):
            return await self._without(ask)
        if not may_read(request):
            ask.cache, ask.keep = "miss", may_store(request)
            return await self._without(ask)
        way = way_of(request, ask.tenant.semantic_lookup if ask.tenant is not None else SemanticLookup.BESIDE)
        level = LookupLevel.LOOKUP_LEVEL_UNSPECIFIED if way is Way.ALL else LookupLevel.LOOKUP_LEVEL_KEYED
        found = await self._cache.lookup(request, level)
        ask.cache = _state(found)
        if found is not None and ask.cache in _HITS and not young_enough(request, found.answer.age_s):
            ask.cache = "miss"
        ask.keep = ask.cache == "miss" and may_store(request)
        if ask.cache == "miss" and way is Way.BESIDE and not ask.unwanted:
            return await self._with_question(ask)
        self._metrics.cache_lookups.labels(ask.cache).inc()
        if found is not None and ask.cache in _HITS and not ask.unwanted:
            return await self._answer(ask, found.answer)
        return await self._without(ask)

    async def _without(self, ask: Ask) -> Opened:
        """The cache has nothing for it."""
        if ask.request.cache_control.only_if_cached and not ask.unwanted:
            raise NotCached(ask.cache)
        return await self._inner.open(ask)

    async def _with_question(self, ask: Ask) -> Opened:
        """The dispatch waits for nothing. What no worker can take waits for the answer, since that is all it may get."""
        question = self._beside.ask(ask.request)
        ask.cache = "pending"
        try:
            opened = await self._inner.open(ask)
        except (NoWorkers, QueueFull):
            answer = await self._beside.soon(question)
            if answer is None or ask.unwanted:
                raise
            ask.cache = "semantic"
            self._metrics.cache_lookups.labels(ask.cache).inc()
            return await self._answer(ask, answer)
        except BaseException:
            question.cancel()
            raise
        self._beside.dispatched(ask.request.generation, opened, question)
        return opened

    async def _answer(self, ask: Ask, answer: cache_pb2.CachedAnswer) -> Opened:
        """The answer goes into the channel before it is delivered, so that a resume finds it."""
        request = ask.request
        pace: tuple[float, ...] = ()
        if request.replay == common_pb2.REPLAY_PACED:
            # `accepted`, `started` and the end wait for nothing.
            pace = (0.0, 0.0, *gaps(answer.events), 0.0)
        if request.durability != common_pb2.DURABILITY_OFF:
            told = events.replay(request, answer, ask.cache, request.durability, ask.allowance)
            try:
                await self._journal.keep(request, told)
                return Opened(told, None, durable=True, pace=pace)
            except StoreUnavailable:
                if ask.needs_store:
                    raise
        self._records.note_answered(request)
        return Opened(events.replay(request, answer, ask.cache, allowance=ask.allowance), None, pace=pace)


def _state(found: cache_pb2.LookupResponse | None) -> str:
    """What `Accepted.cache` says."""
    if found is None:
        return "unavailable"
    return state_of(found.outcome)
