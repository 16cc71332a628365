"""The exact cache: requests in, answers out. No I/O, and no time of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from services.cache.core.eligibility import StoreRefusal, refuses_store
from services.cache.core.entries import Entries, Entry
from services.cache.core.query import Query
from streamway.v1 import cache_pb2, common_pb2

# Tenants whose counters are kept apart; those of later ones are only in the sum.
_MOST_TENANTS: Final = 4096


@dataclass(slots=True)
class Counters:
    """What happened: in all since the start, of a tenant since it is known."""

    hits: int = 0
    folded_hits: int = 0
    semantic_hits: int = 0
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

    def __init__(self, entries: Entries, limits: Limits, clock: Callable[[], float]) -> None:
        self._entries = entries
        self._limits = limits
        self._now = clock
        self._total = Counters()
        self._tenants: dict[str, Counters] = {}
        # Tenants of whom something was counted since it was saved.
        self.changed: set[str] = set()

    @property
    def limits(self) -> Limits:
        """What it keeps to."""
        return self._limits

    @property
    def entries(self) -> Entries:
        """What it holds."""
        return self._entries

    def query(self, tenant: str, request: common_pb2.GenerationRequest) -> Query | None:
        """The request as a question; None, and counted, for what must not be answered from the cache."""
        query = Query.of(tenant, request, self._limits.request_bytes)
        if query is None:
            self.count(tenant, "bypassed")
        return query

    def get(self, query: Query) -> Entry | None:
        """The entry of the same request."""
        return self._entries.get(query.tenant, query.key, self._now())

    def get_entry(self, query: Query, entry_id: str) -> Entry | None:
        """That of a question that was found to be the same; None where it has gone meanwhile."""
        return self._entries.get_by_id(query.tenant, entry_id, self._now())

    def answer(self, entry: Entry, similarity: float = 1.0) -> cache_pb2.CachedAnswer:
        """What an entry says."""
        return _given(entry, self._now(), similarity)

    def put(
        self, query: Query, events: Sequence[common_pb2.Event], ttl_s: float, extra_bytes: int = 0
    ) -> Entry | StoreRefusal:
        """Keeps a whole answer, or says why not. `extra_bytes` is what it takes elsewhere."""
        answer = _answer(query.model, events)
        body = answer.SerializeToString(deterministic=True)
        refusal = refuses_store(
            events, len(body), min(self._limits.answer_bytes, self._entries.tenant_limit_bytes(query.tenant))
        )
        if refusal:
            return refusal
        lives_s = min(ttl_s, self._limits.most_ttl_s) if ttl_s > 0 else self._limits.ttl_s
        entry, evicted = self._entries.put(
            *(query.tenant, query.key, query.model, body, lives_s, self._now()),
            extra_bytes=extra_bytes,
            cost=_cost(answer),
        )
        self.count(query.tenant, "stored")
        self._evicted(evicted)
        return entry

    def adopt(self, entry: Entry) -> bool:
        """Takes an entry from the store, unless there is one of its key, or it has expired."""
        now = self._now()
        if entry.expires_at <= now or self._entries.get(entry.tenant, entry.key, now) is not None:
            return False
        self._evicted(self._entries.adopt(entry))
        return True

    def text(self, tenant: str, entry_id: str) -> str | None:
        """The text of an entry's answer; None for one that has gone. Does not count as use."""
        answer = self.peek(tenant, entry_id)
        return text_of(answer.events) if answer is not None else None

    def peek(self, tenant: str, entry_id: str) -> cache_pb2.CachedAnswer | None:
        """An entry's answer; None for one that has gone. Does not count as use."""
        entry = self._entries.peek(tenant, entry_id)
        if entry is None:
            return None
        answer = cache_pb2.CachedAnswer()
        answer.ParseFromString(entry.body)
        return answer

    def bound(self, limit_bytes: int) -> None:
        """What all entries may have in memory from now on."""
        self._evicted(self._entries.bound(limit_bytes))

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
            limit = self._entries.tenant_limit_bytes(tenant)
        return cache_pb2.StatsResponse(
            entries=count,
            bytes=size,
            limit_bytes=limit,
            hits=counters.hits,
            folded_hits=counters.folded_hits,
            semantic_hits=counters.semantic_hits,
            misses=counters.misses,
            bypassed=counters.bypassed,
            stored=counters.stored,
            evicted=counters.evicted,
        )

    def _evicted(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.count(entry.tenant, "evicted")

    def count(self, tenant: str, what: str) -> None:
        """Adds one to a counter of `Counters`, in the sum and for the tenant."""
        for each in (self._total, self.counters(tenant)):
            setattr(each, what, getattr(each, what) + 1)
        if tenant in self._tenants:
            self.changed.add(tenant)

    def counters(self, tenant: str) -> Counters:
        """Those of a tenant; nobody's, where there are too many."""
        counters = self._tenants.get(tenant)
        if counters is None:
            counters = Counters()
            if len(self._tenants) < _MOST_TENANTS:
                self._tenants[tenant] = counters
        return counters


def text_of(events: Iterable[common_pb2.Event]) -> str:
    """The text of an answer with one choice."""
    return "".join(event.token.text for event in events if event.WhichOneof("event") == "token")


def _cost(answer: cache_pb2.CachedAnswer) -> float:
    """What making it took, in tokens of prompt: one that is made takes about four times as long as one that is read."""
    return max(1.0, answer.usage.prompt_tokens + 4.0 * (answer.usage.completion_tokens or len(answer.events)))


def _answer(model: str, events: Sequence[common_pb2.Event]) -> cache_pb2.CachedAnswer:
    """The answer without what belongs to the one generation that gave it."""
    answer = cache_pb2.CachedAnswer(model=model)
    for event in events:
        kind = event.WhichOneof("event")
        if kind == "token":
            answer.events.add(offset_ms=event.offset_ms).token.CopyFrom(event.token)
        elif kind == "finished":
            answer.finish_reason = event.finished.finish_reason
            if event.finished.HasField("usage"):
                answer.usage.CopyFrom(event.finished.usage)
    return answer


def _given(entry: Entry, now: float, similarity: float) -> cache_pb2.CachedAnswer:
    answer = cache_pb2.CachedAnswer()
    answer.ParseFromString(entry.body)
    answer.entry = entry.id
    answer.age_s = max(0, int(now - entry.stored_at))
    answer.similarity = similarity
    return answer
