"""Bytes, tenants, expiry and order of the exact cache's entries."""

from __future__ import annotations

import itertools

from services.cache.core.entries import OVERHEAD_BYTES, Entries
from services.cache.core.eviction.lru import Lru

_SIZE = OVERHEAD_BYTES + 100


def cache(entries: int = 10, tenant_entries: int = 10, draw: float = 0.5) -> Entries:
    ids = itertools.count()
    return Entries(entries * _SIZE, tenant_entries * _SIZE, lambda: draw, lambda: f"id-{next(ids)}", Lru)


def put(into: Entries, key: str, tenant: str = "t", now: float = 0.0, model: str = "m", size: int = 100) -> list[str]:
    _, evicted = into.put(tenant, key.encode(), model, b"x" * size, 100.0, now)
    return [entry.key.decode() for entry in evicted]


def test_the_least_recently_used_entry_goes_first() -> None:
    entries = cache(entries=3)
    for key in "abc":
        put(entries, key)
    assert entries.get("t", b"a", 1.0) is not None
    assert put(entries, "d") == ["b"]
    assert entries.get("t", b"a", 1.0) is not None
    assert entries.get("t", b"b", 1.0) is None


def test_a_lower_bound_holds_at_once_and_the_tenant_with_most_gives() -> None:
    entries = cache(entries=6)
    put(entries, "x", tenant="quiet")
    for key in "abcd":
        put(entries, key)
    assert [entry.key for entry in entries.bound(3 * _SIZE)] == [b"a", b"b"]
    assert entries.partition("quiet")[0] == 1
    assert len(put(entries, "e")) == 1


def test_a_large_entry_pushes_out_as_many_as_it_needs() -> None:
    entries = cache(entries=4)
    for key in "abcd":
        put(entries, key)
    assert put(entries, "e", size=100 + 2 * _SIZE) == ["a", "b", "c"]
    assert entries.size_bytes <= entries.limit_bytes


def test_a_tenant_over_its_limit_pushes_out_only_its_own() -> None:
    entries = cache(entries=10, tenant_entries=2)
    put(entries, "x", tenant="quiet")
    for key in "abcdefgh":
        put(entries, key, tenant="loud")
    assert entries.partition("loud") == (2, 2 * _SIZE)
    assert entries.get("quiet", b"x", 1.0) is not None


def test_a_tenant_has_what_its_tier_lets_it_buffer_where_that_is_less() -> None:
    bounds: dict[str, int] = {"small": 2 * _SIZE, "large": 1 << 40}
    entries = Entries(
        10 * _SIZE, 5 * _SIZE, lambda: 0.5, map(str, itertools.count()).__next__, Lru, bound_of=bounds.get
    )
    put(entries, "x", tenant="other")
    for key in "abcdefgh":
        put(entries, key, tenant="small")
    assert entries.partition("small") == (2, 2 * _SIZE)
    assert [entries.tenant_limit_bytes(tenant) for tenant in ("small", "large", "other")] == [
        2 * _SIZE,
        5 * _SIZE,
        5 * _SIZE,
    ]
    bounds["small"] = _SIZE
    put(entries, "i", tenant="small")
    assert entries.partition("small") == (1, _SIZE)
    assert entries.get("other", b"x", 1.0) is not None


def test_the_same_key_of_two_tenants_is_two_entries() -> None:
    entries = cache()
    put(entries, "a", tenant="one")
    assert entries.get("two", b"a", 0.0) is None


def test_storing_again_replaces_and_counts_bytes_once() -> None:
    entries = cache()
    put(entries, "a")
    put(entries, "a", size=50)
    assert len(entries) == 1
    assert entries.size_bytes == OVERHEAD_BYTES + 50


def test_over_the_limit_of_all_the_tenant_with_most_gives() -> None:
    entries = cache(entries=6)
    put(entries, "a", tenant="small")
    for key in "bcde":
        put(entries, key, tenant="large")
    put(entries, "f", tenant="small")
    assert put(entries, "g", tenant="small") == ["b"]
    assert (entries.partition("small")[0], entries.partition("large")[0]) == (3, 3)
    assert len(entries) == 6


def test_the_heap_of_tenants_stays_small() -> None:
    entries = cache(entries=4)
    for number in range(20_000):
        put(entries, str(number), tenant=str(number % 3))
    assert len(entries._largest) <= 2 * 3 + 1024


def test_an_expired_entry_is_not_served_and_a_sweep_frees_the_rest() -> None:
    entries = cache()
    put(entries, "a")
    put(entries, "b")
    assert entries.get("t", b"a", 99.0) is not None
    assert entries.get("t", b"a", 100.0) is None
    assert entries.sweep(100.0) == 1
    assert entries.size_bytes == 0
    assert entries.partition("t") == (0, 0)


def test_time_to_live_is_spread_by_ten_percent() -> None:
    for draw, lives in ((0.0, 90.0), (0.5, 100.0), (1.0, 110.0)):
        entry, _ = cache(draw=draw).put("t", b"a", "m", b"", 100.0, 5.0)
        assert abs(entry.expires_at - 5.0 - lives) < 1e-9


def test_the_heap_of_expiries_stays_as_small_as_the_cache() -> None:
    entries = cache(entries=4)
    for number in range(20_000):
        put(entries, str(number))
    assert len(entries._expiries) <= 2 * 4 + 1024


def test_another_tenants_id_is_an_unknown_id() -> None:
    entries = cache()
    put(entries, "a", tenant="one")
    assert not entries.remove("two", "id-0")
    assert not entries.knows("two", "id-0")
    assert entries.remove("one", "id-0")
    assert not entries.remove("one", "id-0")


def test_entries_of_a_model_go_together() -> None:
    entries = cache()
    put(entries, "a", model="m1")
    put(entries, "b", model="m2")
    put(entries, "c", tenant="other", model="m1")
    assert [e.key for e in entries.remove_where("t", lambda e: e.model == "m1")] == [b"a"]
    assert [e.key for e in entries.remove_where("t", lambda _: True)] == [b"b"]
    assert entries.remove_where("t", lambda _: True) == []
    assert len(entries) == 1
