"""What the cache answers: first by key, then by the words however typed, then by likeness."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from services.cache.core import folds
from services.cache.core.books import Books
from services.cache.core.entries import Entry
from services.cache.core.folds import Folds
from services.cache.core.inserts import InsertLimits, Inserts
from services.cache.core.query import Query
from services.cache.core.records import Alike, StoredEntry
from services.cache.core.store import ExactCache, text_of
from services.cache.core.tags import caller_of, tags_of
from services.cache.core.target import Target
from services.cache.io.explaining import explained, savings_of, stats_of, tell_history, tell_switch
from services.cache.io.likeness import Likeness
from services.cache.io.persistence import Persistence
from streamway.runtime.tasks import TaskScope
from streamway.v1 import cache_pb2, common_pb2

# Answers whose vectors are awaited; what comes while so many are is found by its key only.
_MOST_LEARNING: Final = 256
# Entries whose vector is to be made anew; what is beyond is found by its key only.
_MOST_TO_REMAKE: Final = 100_000
_REMAKE_PAUSE_S: Final = 0.005
_REFUSED_PAUSE_S: Final = 1.0


class Answers:
    """The levels as one. Without `likeness` there is no semantic one. Tenants are authenticated by the caller."""

    def __init__(
        self, exact: ExactCache, scope: TaskScope, inserts: InsertLimits, books: Books, clock: Callable[[], float]
    ) -> None:
        self.inserts = Inserts(inserts)
        self._now = clock
        self.likeness: Likeness | None = None
        self.persistence: Persistence | None = None
        self._to_remake: deque[tuple[Entry, Alike]] = deque(maxlen=_MOST_TO_REMAKE)
        self._remake_wanted = asyncio.Event()
        self.books = books
        self._exact = exact
        self._folds = Folds()
        self._scope = scope
        self._learning = 0

    def lookup_exact(
        self,
        tenant: str,
        request: common_pb2.GenerationRequest,
        level: cache_pb2.LookupLevel.ValueType = cache_pb2.LOOKUP_LEVEL_UNSPECIFIED,
    ) -> cache_pb2.LookupResponse | Query:
        """The reply; or, for a question that the semantic level should be asked, that question."""
        query = self._exact.query(tenant, request)
        if query is None:
            return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_BYPASS)
        alike = query.semantic and self.likeness is not None
        if level == cache_pb2.LOOKUP_LEVEL_SEMANTIC:
            return query if alike else self._missed(query)
        entry = self._exact.get(query)
        if entry is not None:
            return self._hit(entry, "hits", cache_pb2.CACHE_OUTCOME_HIT_EXACT)
        entry = self._typed_otherwise(query)
        if entry is not None:
            return self._hit(entry, "folded_hits", cache_pb2.CACHE_OUTCOME_HIT_FOLDED)
        if self._is_kept(query) or (alike and level != cache_pb2.LOOKUP_LEVEL_KEYED):
            return query
        return self._missed(query, level)

    async def lookup_further(
        self, query: Query, level: cache_pb2.LookupLevel.ValueType = cache_pb2.LOOKUP_LEVEL_UNSPECIFIED
    ) -> cache_pb2.LookupResponse:
        """Hit or miss of what takes longer: the store, then the semantic level."""
        kept = level != cache_pb2.LOOKUP_LEVEL_SEMANTIC and self._is_kept(query)
        entry = await self.persistence.find(query) if self.persistence is not None and kept else None
        if entry is not None:
            return self._hit(entry, "hits", cache_pb2.CACHE_OUTCOME_HIT_EXACT)
        if level == cache_pb2.LOOKUP_LEVEL_KEYED:
            return self._missed(query, level)
        found = await self.likeness.find(query) if self.likeness is not None and query.semantic else None
        entry = self._exact.get_entry(query, found.entry) if found is not None else None
        if found is None or entry is None:
            return self._missed(query)
        return self._hit(entry, "semantic_hits", cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC, found.similarity)

    def store(
        self, tenant: str, request: common_pb2.GenerationRequest, events: Sequence[common_pb2.Event], ttl_s: float
    ) -> cache_pb2.StoreResponse:
        """Keeps a whole answer, or says why not. It is found by its key at once, by likeness a moment later."""
        query = self._exact.query(tenant, request)
        if query is None:
            return cache_pb2.StoreResponse(refused="not_eligible")
        tags = tags_of(request)
        if not self.inserts.allows(tenant, caller_of(tags), self._now()):
            return cache_pb2.StoreResponse(refused="over_quota")
        alike_bytes = self.likeness.cost_bytes(query) if self.likeness is not None else 0
        folded_bytes = folds.COST_BYTES if query.folded is not None else 0
        kept = self._exact.put(query, events, ttl_s, alike_bytes + folded_bytes)
        if isinstance(kept, str):
            return cache_pb2.StoreResponse(refused=kept)
        kept.tags = tags
        if query.folded is not None:
            kept.folded = query.folded
            self._folds.add(query.folded, kept.id)
        if self.likeness is not None and alike_bytes and self._learning < _MOST_LEARNING:
            self._learning += 1
            self._scope.spawn(self._learn(self.likeness, query, kept, text_of(events)), "learn")
        else:
            self._keep(kept, _unencoded(query) if alike_bytes else None)
        return cache_pb2.StoreResponse(entry=kept.id)

    async def invalidate(self, tenant: str, target: Target | str) -> int:
        """Removes one entry by its id, or those of a target; gives their number. Raises StoreUnavailable, see the proto."""
        if self.persistence is not None:
            if isinstance(target, str):
                return await self.persistence.remove_by_id(tenant, target)
            return await self.persistence.purge(tenant, target)
        if isinstance(target, str):
            return int(self._exact.entries.remove(tenant, target))
        return len(self._exact.entries.remove_where(tenant, target.covers))

    def feedback(self, tenant: str, entry: str, good: bool) -> bool:
        """Takes an opinion on an answer; see the proto. True when the tenant has that entry."""
        if not self._exact.entries.knows(tenant, entry):
            return False
        if not good and not (self.likeness is not None and self.likeness.complain(tenant, entry)):
            self.evict(tenant, entry)
        return True

    def evict(self, tenant: str, entry_id: str) -> None:
        """Removes an entry that must not answer again."""
        entry = self._exact.entries.peek(tenant, entry_id)
        if entry is not None and self.persistence is not None:
            self.persistence.remove(entry)
        elif entry is not None:
            self._exact.entries.remove(tenant, entry_id)

    def cost_of(self, stored: StoredEntry) -> int:
        """See `Findable`."""
        alike_bytes = (
            self.likeness.cost_of(stored.alike) if self.likeness is not None and stored.alike is not None else 0
        )
        return alike_bytes + (folds.COST_BYTES if stored.folded else 0)

    def found(self, entry: Entry, alike: Alike | None) -> None:
        """See `Findable`. A vector that another encoder made is made again, when there is time for it."""
        if entry.folded:
            self._folds.add(entry.folded, entry.id)
        if self.likeness is None or alike is None or not self.likeness.cost_of(alike):
            return
        if not self.likeness.adopt(entry.id, alike):
            self._to_remake.append((entry, alike))
            self._remake_wanted.set()

    async def remake(self) -> None:
        """Makes vectors anew, one after the other, until cancelled."""
        while True:
            await self._remake_wanted.wait()
            self._remake_wanted.clear()
            while self._to_remake and self.likeness is not None:
                if self.likeness.encoding.refused:
                    await asyncio.sleep(_REFUSED_PAUSE_S)
                    continue
                entry, alike = self._to_remake.popleft()
                made = await self.likeness.remake(alike, entry.id, partial(self._lives, entry))
                if made is not None:
                    self._keep(entry, made)
                # Who asks now comes first.
                await asyncio.sleep(_REMAKE_PAUSE_S)

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

    def stats(self, tenant: str | None, *, details: bool = False) -> cache_pb2.StatsResponse:
        """Counters and sizes of one tenant, of all with None. `details`: with what a tenant's semantic level did lately."""
        stats = self._exact.stats(tenant)
        book = self.books.known(tenant) if tenant is not None else None
        if tenant is None:
            stats.savings.CopyFrom(savings_of(self.books.total))
        elif book is not None:
            stats.savings.CopyFrom(savings_of(book.account))
        standing = self.likeness.standings.known(tenant) if self.likeness is not None and tenant is not None else None
        if self.likeness is not None and standing is not None:
            stats.semantic.CopyFrom(stats_of(standing))
            stats.semantic.encoder_trouble = self.likeness.encoding.refused
            stats.semantic.budget = standing.options.budget
            if book is not None:
                tell_switch(book.switch, stats.semantic)
                if details:
                    tell_history(book.history, stats.semantic)
        return stats

    def _typed_otherwise(self, query: Query) -> Entry | None:
        entry = self._folds.find(query.folded) if query.folded is not None else None
        return self._exact.get_entry(query, entry) if entry is not None else None

    def _is_kept(self, query: Query) -> bool:
        return self.persistence is not None and self.persistence.may_find(query)

    def _lives(self, entry: Entry) -> bool:
        return self._exact.entries.peek(entry.tenant, entry.id) is entry

    def _keep(self, entry: Entry, alike: Alike | None) -> None:
        if self.persistence is not None and self._lives(entry):
            self.persistence.keeper.keep(entry, alike)

    def _hit(
        self, entry: Entry, counted: str, outcome: cache_pb2.CacheOutcome.ValueType, similarity: float = 1.0
    ) -> cache_pb2.LookupResponse:
        self._exact.count(entry.tenant, counted)
        if self.persistence is not None:
            self.persistence.used(entry)
        return cache_pb2.LookupResponse(outcome=outcome, answer=self._exact.answer(entry, similarity))

    def _missed(
        self, query: Query, level: cache_pb2.LookupLevel.ValueType = cache_pb2.LOOKUP_LEVEL_UNSPECIFIED
    ) -> cache_pb2.LookupResponse:
        if level != cache_pb2.LOOKUP_LEVEL_KEYED or not query.semantic or self.likeness is None:
            # Who asks the keyed levels alone asks the other one next, and only then it is a miss.
            self._exact.count(query.tenant, "misses")
        return cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_MISS)

    async def _learn(self, likeness: Likeness, query: Query, entry: Entry, text: str) -> None:
        alike, repeats = None, False
        try:
            # Compared first: once it is findable it would be its own nearest.
            await likeness.learn(query, text)
            repeats = await likeness.repeats(query, text)
            if not repeats:
                alike = await likeness.add(query, entry.id, text, partial(self._lives, entry))
        finally:
            self._learning -= 1
            self._keep(entry, None if repeats else alike or _unencoded(query))


def _unencoded(query: Query) -> Alike:
    """For an entry that nobody has made a vector of in time: the next who reads it does."""
    return Alike(query.context, query.question, "", b"")
