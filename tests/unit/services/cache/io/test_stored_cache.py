"""What a tenant may have in the store."""

from __future__ import annotations

from services.cache.core.books import Books
from services.cache.core.entries import Entries
from services.cache.core.eviction.lru import Lru
from services.cache.core.inserts import InsertLimits
from services.cache.core.savings import Prices
from services.cache.core.semantic.switch import Terms
from services.cache.core.store import ExactCache, Limits
from services.cache.io.answers import Answers
from services.cache.io.persistence import StoreOptions
from services.cache.io.stored_cache import StoredCache
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope


async def test_a_tenants_part_of_the_store_is_not_more_while_memory_is_short() -> None:
    async with TaskScope("test") as scope:
        entries = Entries(1000, 100, lambda: 0.5, lambda: "id", Lru)
        cache = ExactCache(entries, Limits(60, 60, 1000, 1000), lambda: 0.0)
        answers = Answers(cache, scope, InsertLimits(0, 0), Books(Prices(), Terms(), cache.peek), lambda: 0.0)
        stored = StoredCache("redis://127.0.0.1:1", SystemClock(), StoreOptions(50_000, 1, 60), cache, answers, scope)
        assert stored._keeper._limit_of("acme") == 5_000
        cache.bound(250)
        assert stored._keeper._limit_of("acme") == 5_000
