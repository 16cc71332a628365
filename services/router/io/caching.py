"""Asks the cache before a worker."""

from __future__ import annotations

from typing import Final

from services.router.core import events
from services.router.core.cacheable import qualifies
from services.router.interfaces import AnswerCache, Ask, Opened, Opener
from services.router.io.journal import Journal
from services.router.io.records import Records
from services.router.metrics import RouterMetrics
from streamway.errors import StoreUnavailable
from streamway.v1 import cache_pb2, common_pb2
from streamway.v1.cache_pb2 import CacheOutcome

_HITS: Final = ("exact", "folded", "semantic")


class Caching:
    """An opener that answers from the cache what it can, and lets `inner` do the rest.

    A cache that says nothing in time is no reason to refuse: the request goes on as a miss.
    """

    def __init__(
        self,
        inner: Opener,
        cache: AnswerCache,
        records: Records,
        journal: Journal,
        metrics: RouterMetrics,
        limit_bytes: int,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._records = records
        self._journal = journal
        self._metrics = metrics
        self._limit_bytes = limit_bytes

    async def open(self, ask: Ask) -> Opened:
        """Raises what `inner` raises."""
        if not qualifies(ask.request, ask.body, self._limit_bytes):
            return await self._inner.open(ask)
        found = await self._cache.lookup(ask.request)
        ask.cache = _state(found)
        self._metrics.cache_lookups.labels(ask.cache).inc()
        if ask.cache in _HITS and found is not None and not ask.unwanted:
            return await self._answer(ask, found.answer)
        ask.keep = ask.cache == "miss"
        return await self._inner.open(ask)

    async def _answer(self, ask: Ask, answer: cache_pb2.CachedAnswer) -> Opened:
        """The answer goes into the channel before it is delivered, so that a resume finds it."""
        request = ask.request
        if request.durability != common_pb2.DURABILITY_OFF:
            told = events.replay(request, answer, ask.cache, request.durability, ask.allowance)
            try:
                await self._journal.keep(request, told)
                return Opened(told, None, durable=True)
            except StoreUnavailable:
                if ask.needs_store:
                    raise
        self._records.note_answered(request)
        return Opened(events.replay(request, answer, ask.cache, allowance=ask.allowance), None)


def _state(found: cache_pb2.LookupResponse | None) -> str:
    """What `Accepted.cache` says."""
    if found is None:
        return "unavailable"
    match found.outcome:
        case CacheOutcome.CACHE_OUTCOME_HIT_EXACT:
            return "exact"
        case CacheOutcome.CACHE_OUTCOME_HIT_FOLDED:
            return "folded"
        case CacheOutcome.CACHE_OUTCOME_HIT_SEMANTIC:
            return "semantic"
        case CacheOutcome.CACHE_OUTCOME_MISS:
            return "miss"
        case _:
            return "off"
