"""What the cache answers: first by key, then by the words however typed, then by likeness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from services.cache.core import folds
from services.cache.core.folds import Folds
from services.cache.core.query import Query
from services.cache.core.store import ExactCache, text_of
from services.cache.io.explaining import explained, stats_of
from services.cache.io.likeness import Likeness
from streamway.runtime.tasks import TaskScope
from streamway.v1 import cache_pb2, common_pb2

# Answers whose vectors are awaited; what comes while so many are is found by its key only.
_MOST_LEARNING: Final = 256


class Answers:
    """The levels as one. Without `likeness` there is no semantic one. Tenants are authenticated by the caller."""

    def __init__(self, exact: ExactCache, scope: TaskScope) -> None:
        self.likeness: Likeness | None = None
        self._exact = exact
        self._folds = Folds()
        self._scope = scope
        self._learning = 0

    def lookup_exact(self, tenant: str, request: common_pb2.GenerationRequest) -> cache_pb2.LookupResponse | Query:
        """The reply; or, for a question that the semantic level should be asked, that question."""
        query = self._exact.query(tenant, request)
        if query is None:
            return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_BYPASS)
        answer = self._exact.get(query)
        if answer is not None:
            self._exact.count(tenant, "hits")
            return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_HIT_EXACT, answer=answer)
        answer = self._typed_otherwise(query)
        if answer is not None:
            self._exact.count(tenant, "folded_hits")
            return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_HIT_FOLDED, answer=answer)
        if query.semantic and self.likeness is not None:
            return query
        return self._missed(query)

    async def lookup_alike(self, query: Query) -> cache_pb2.LookupResponse:
        """Hit or miss of the semantic level."""
        found = await self.likeness.find(query) if self.likeness is not None else None
        answer = self._exact.get_entry(query, found.entry, found.similarity) if found is not None else None
        if answer is None:
            return self._missed(query)
        self._exact.count(query.tenant, "semantic_hits")
        return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC, answer=answer)

    def store(
        self, tenant: str, request: common_pb2.GenerationRequest, events: Sequence[common_pb2.Event], ttl_s: float
    ) -> cache_pb2.StoreResponse:
        """Keeps a whole answer, or says why not. It is found by its key at once, by likeness a moment later."""
        query = self._exact.query(tenant, request)
        if query is None:
            return cache_pb2.StoreResponse(refused="not_eligible")
        alike_bytes = self.likeness.cost_bytes(query) if self.likeness is not None else 0
        folded_bytes = folds.COST_BYTES if query.folded is not None else 0
        kept = self._exact.put(query, events, ttl_s, alike_bytes + folded_bytes)
        if isinstance(kept, str):
            return cache_pb2.StoreResponse(refused=kept)
        if query.folded is not None:
            self._folds.add(query.folded, kept.id)
        if self.likeness is not None and alike_bytes and self._learning < _MOST_LEARNING:
            self._learning += 1
            self._scope.spawn(self._learn(self.likeness, query, kept.id, text_of(events)), "learn")
        return cache_pb2.StoreResponse(entry=kept.id)

    def feedback(self, tenant: str, entry: str, good: bool) -> bool:
        """Takes an opinion on an answer; see the proto. True when the tenant has that entry."""
        if not self._exact.entries.knows(tenant, entry):
            return False
        if not good and not (self.likeness is not None and self.likeness.complain(tenant, entry)):
            self._exact.entries.remove(tenant, entry)
        return True

    def forget(self, entry: str) -> None:
        """The entry is gone."""
        self._folds.remove(entry)
        if self.likeness is not None:
            self.likeness.forget(entry)

    async def explain(self, tenant: str, request: common_pb2.GenerationRequest) -> cache_pb2.ExplainResponse:
        """What a lookup would find now; nothing is counted."""
        query = Query.of(tenant, request, self._exact.limits.request_bytes)
        if query is None:
            return cache_pb2.ExplainResponse(outcome="bypass", reason="not_eligible")
        if self._exact.get(query) is not None:
            return cache_pb2.ExplainResponse(outcome="exact", reason="same_request")
        if self._typed_otherwise(query) is not None:
            return cache_pb2.ExplainResponse(outcome="folded", reason="same_words")
        if self.likeness is None:
            return cache_pb2.ExplainResponse(outcome="miss", reason="no_encoder")
        decision = await self.likeness.decide(query)
        if decision is None:
            return cache_pb2.ExplainResponse(outcome="miss", reason="not_compared")
        return explained(decision, self.likeness.partitions)

    def stats(self, tenant: str | None) -> cache_pb2.StatsResponse:
        """Counters and sizes of one tenant, of all with None."""
        stats = self._exact.stats(tenant)
        standing = self.likeness.standings.known(tenant) if self.likeness is not None and tenant is not None else None
        if self.likeness is not None and standing is not None:
            stats.semantic.CopyFrom(stats_of(standing))
            stats.semantic.encoder_trouble = self.likeness.encoding.refused
        return stats

    def _typed_otherwise(self, query: Query) -> cache_pb2.CachedAnswer | None:
        entry = self._folds.find(query.folded) if query.folded is not None else None
        return self._exact.get_entry(query, entry, 1.0) if entry is not None else None

    def _missed(self, query: Query) -> cache_pb2.LookupResponse:
        self._exact.count(query.tenant, "misses")
        return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_MISS)

    async def _learn(self, likeness: Likeness, query: Query, entry: str, text: str) -> None:
        try:
            # Compared first: once it is findable it would be its own nearest.
            await likeness.learn(query, text)
            await likeness.add(query, entry, lambda: self._exact.entries.knows(query.tenant, entry))
        finally:
            self._learning -= 1
