"""Floods of answers to be stored."""

from __future__ import annotations

from services.cache.core.inserts import InsertLimits, Inserts


def test_h6_a_flood_of_one_tenant_stores_its_quota_and_no_other_tenants() -> None:
    inserts = Inserts(InsertLimits(tenant=60, user=0))
    assert sum(inserts.allows("loud", "", 0.0) for _ in range(1_000)) == 60
    assert inserts.refused == 940
    assert inserts.allows("quiet", "", 0.0)
    assert sum(inserts.allows("loud", "", 10.0) for _ in range(100)) == 10
    assert sum(inserts.allows("loud", "", 1_000.0) for _ in range(100)) == 60


def test_h6_a_burst_of_one_user_leaves_room_for_the_others_of_its_tenant() -> None:
    inserts = Inserts(InsertLimits(tenant=100, user=10))
    assert sum(inserts.allows("t", "user:a", 0.0) for _ in range(50)) == 10
    assert sum(inserts.allows("t", "user:b", 0.0) for _ in range(50)) == 10
    assert sum(inserts.allows("other", "user:a", 0.0) for _ in range(50)) == 10
    assert sum(inserts.allows("t", "", 0.0) for _ in range(200)) == 80


def test_a_clock_that_goes_back_fills_nothing_and_zero_is_no_limit() -> None:
    inserts = Inserts(InsertLimits(tenant=2, user=0))
    assert [inserts.allows("t", "user:a", now) for now in (10.0, 5.0, 4.0)] == [True, True, False]
    free = Inserts(InsertLimits(tenant=0, user=0))
    assert all(free.allows("t", "user:a", 0.0) for _ in range(1_000))


def test_only_so_many_buckets_are_kept() -> None:
    inserts = Inserts(InsertLimits(tenant=1, user=0))
    for number in range(20_000):
        inserts.allows(str(number), "", 0.0)
    assert len(inserts._buckets) == 10_000
