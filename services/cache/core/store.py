"""The exact cache: requests in, answers out. No I/O, and no time of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from services.cache.core.eligibility import StoreRefusal, refuses_read, refuses_store
from services.cache.core.lru import LruCache
from streamway.cachekey.canonical import NotCanonical, canonical_form
from streamway.cachekey.key import exact_key
from streamway.v1 import cache_pb2, common_pb2

# Tenants whose counters are kept apart; those of later ones are only in the sum.
_MOST_TENANTS: Final = 4096


@dataclass(slots=True)
class Counters:
    """What happened since the start."""

    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    stored: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """`ttl_s` is for stores that name none, `most_ttl_s` bounds those that do; sizes in bytes."""

    ttl_s: float
    most_ttl_s: float
    answer_bytes: int
    request_bytes: int


class ExactCache:
    """Answers by exact key. `now` is monotonic seconds; tenants are authenticated by the caller."""

    def __init__(self, entries: LruCache, limits: Limits, clock: Callable[[], float]) -> None:
        self._entries = entries
        self._limits = limits
        self._now = clock
        self._total = Counters()
        self._tenants: dict[str, Counters] = {}

    @property
    def entries(self) -> LruCache:
        """What it holds."""
        return self._entries

    def lookup(self, tenant: str, request: common_pb2.GenerationRequest) -> cache_pb2.LookupResponse:
        """Hit with the answer, miss, or bypass for what may not be answered from a cache."""
        key = self._key(tenant, request)
        if key is None:
            self._count(tenant, "bypassed")
            return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_BYPASS)
        now = self._now()
        entry = self._entries.get(tenant, key, now)
        if entry is None:
            self._count(tenant, "misses")
            return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_MISS)
        self._count(tenant, "hits")
        response = cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_HIT_EXACT)
        response.answer.ParseFromString(entry.body)
        response.answer.entry = entry.id
        response.answer.age_s = int(now - entry.stored_at)
        return response

    def store(
        self,
        tenant: str,
        request: common_pb2.GenerationRequest,
        events: Sequence[common_pb2.Event],
        ttl_s: float = 0,
    ) -> cache_pb2.StoreResponse:
        """Keeps a whole answer, or says why not."""
        key = self._key(tenant, request)
        if key is None:
            return _refused("not_eligible")
        body = _answer(request.model, events).SerializeToString(deterministic=True)
        refusal = refuses_store(events, len(body), min(self._limits.answer_bytes, self._entries.tenant_limit_bytes))
        if refusal:
            return _refused(refusal)
        lives_s = min(ttl_s, self._limits.most_ttl_s) if ttl_s > 0 else self._limits.ttl_s
        entry, evicted = self._entries.put(tenant, key, request.model, body, lives_s, self._now())
        self._count(tenant, "stored")
        for old in evicted:
            self._count(old.tenant, "evicted")
        return cache_pb2.StoreResponse(entry=entry.id)

    def invalidate(self, tenant: str, *, entry: str = "", model: str = "", everything: bool = False) -> int:
        """Removes one entry, those of a model, or all of a tenant's; gives their number."""
        if entry:
            return int(self._entries.remove(tenant, entry))
        if model or everything:
            return self._entries.remove_model(tenant, None if everything else model)
        return 0

    def feedback(self, tenant: str, entry: str, good: bool) -> bool:
        """Takes an opinion: a wrong answer is removed. True when the tenant has that entry."""
        return self._entries.knows(tenant, entry) if good else self._entries.remove(tenant, entry)

    def sweep(self) -> int:
        """Removes what has expired; gives the number."""
        return self._entries.sweep(self._now())

    def stats(self, tenant: str | None) -> cache_pb2.StatsResponse:
        """Counters and sizes of one tenant, of all with None."""
        if tenant is None:
            counters, count, size = self._total, len(self._entries), self._entries.size_bytes
            limit = self._entries.limit_bytes
        else:
            counters = self._tenants.get(tenant, Counters())
            count, size = self._entries.partition(tenant)
            limit = self._entries.tenant_limit_bytes
        return cache_pb2.StatsResponse(
            entries=count,
            bytes=size,
            limit_bytes=limit,
            hits=counters.hits,
            misses=counters.misses,
            bypassed=counters.bypassed,
            stored=counters.stored,
            evicted=counters.evicted,
        )

    def _key(self, tenant: str, request: common_pb2.GenerationRequest) -> bytes | None:
        """The key, or None for a request that must not be answered from the cache."""
        if request.cache == common_pb2.CACHE_POLICY_OFF or request.ByteSize() > self._limits.request_bytes:
            return None
        try:
            form = canonical_form(request)
            return None if refuses_read(request.cache, form) else exact_key(tenant, request.model, form)
        except NotCanonical:
            return None

    def _count(self, tenant: str, what: str) -> None:
        counters = self._tenants.get(tenant)
        if counters is None and len(self._tenants) < _MOST_TENANTS:
            counters = self._tenants[tenant] = Counters()
        for each in (self._total, counters):
            if each is not None:
                setattr(each, what, getattr(each, what) + 1)


def _answer(model: str, events: Sequence[common_pb2.Event]) -> cache_pb2.CachedAnswer:
    """The answer without what belongs to the one generation that gave it."""
    answer = cache_pb2.CachedAnswer(model=model)
    for event in events:
        kind = event.WhichOneof("event")
        if kind == "token":
            answer.events.add().token.CopyFrom(event.token)
        elif kind == "finished":
            answer.finish_reason = event.finished.finish_reason
            if event.finished.HasField("usage"):
                answer.usage.CopyFrom(event.finished.usage)
    return answer


def _refused(why: StoreRefusal) -> cache_pb2.StoreResponse:
    return cache_pb2.StoreResponse(refused=why)
