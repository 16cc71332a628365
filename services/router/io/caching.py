"""Asks the cache before a worker."""

from __future__ import annotations

from services.router.core import events
from services.router.core.cacheable import qualifies
from services.router.interfaces import AnswerCache, Ask, Opened, Opener
from services.router.io.records import Records
from services.router.metrics import RouterMetrics
from streamway.v1 import cache_pb2
from streamway.v1.cache_pb2 import CacheOutcome


class Caching:
    """An opener that answers from the cache what it can, and lets `inner` do the rest.

    A cache that says nothing in time is no reason to refuse: the request goes on as a miss.
    """

    def __init__(
        self, inner: Opener, cache: AnswerCache, records: Records, metrics: RouterMetrics, limit_bytes: int
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._records = records
        self._metrics = metrics
        self._limit_bytes = limit_bytes

    async def open(self, ask: Ask) -> Opened:
        """Raises what `inner` raises."""
        if not qualifies(ask.request, ask.body, self._limit_bytes):
            return await self._inner.open(ask)
        found = await self._cache.lookup(ask.request)
        ask.cache = _state(found)
        self._metrics.cache_lookups.labels(ask.cache).inc()
        if ask.cache == "exact" and found is not None and not ask.cancelled:
            self._records.note_answered(ask.request)
            return Opened(events.replay(ask.request, found.answer), None)
        ask.keep = ask.cache == "miss"
        return await self._inner.open(ask)


def _state(found: cache_pb2.LookupResponse | None) -> str:
    """What `Accepted.cache` says."""
    if found is None:
        return "unavailable"
    match found.outcome:
        case CacheOutcome.CACHE_OUTCOME_HIT_EXACT:
            return "exact"
        case CacheOutcome.CACHE_OUTCOME_MISS:
            return "miss"
        case _:
            return "off"
