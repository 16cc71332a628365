"""What a tenant is entitled to on its way from edge to worker."""

from __future__ import annotations

import pytest

from streamway.errors import PermissionDenied
from streamway.tenancy import Tenancy, TierName, build, carry, check, entitle, entitlement_of
from streamway.v1 import common_pb2


def tenancy(**rows: dict[str, object]) -> Tenancy:
    return build(check({"tenants": rows}), {})


def ask(tenant: str, priority: int = 0, model: str = "m") -> common_pb2.GenerationRequest:
    return common_pb2.GenerationRequest(tenant=tenant, priority=priority, model=model)


def test_a_priority_above_the_tenants_highest_is_lowered_and_told() -> None:
    known = tenancy(acme={"tier": "silver"})
    request = ask("acme", 100)
    tenant, lowered = entitle(request, known)
    assert tenant.tier is TierName.SILVER
    assert (request.priority, lowered) == (63, 63)
    assert entitle(ask("acme", 63), known)[1] is None
    assert entitle(ask("acme", -128), known)[1] is None


def test_without_a_configuration_nothing_is_lowered_and_nothing_travels() -> None:
    request = ask("whoever", 127)
    carry(request, Tenancy())
    assert not request.HasField("entitlement")
    tenant, lowered = entitle(request, Tenancy())
    assert lowered is None
    assert tenant.quota.concurrency is None


def test_the_worker_is_told_tier_and_weight() -> None:
    request = ask("acme")
    entitle(request, tenancy(acme={"tier": "bronze", "weight": 7}))
    assert request.entitlement == common_pb2.Entitlement(tier=common_pb2.TIER_BRONZE, weight=7, highest_priority=0)


def test_the_routers_own_row_wins_over_what_the_edge_carried() -> None:
    request = ask("acme", 100)
    carry(request, tenancy(acme={"tier": "gold", "weight": 9}))
    assert request.entitlement.weight == 9
    entitle(request, tenancy(acme={"tier": "bronze"}))
    assert (request.entitlement.tier, request.entitlement.weight) == (common_pb2.TIER_BRONZE, 1)
    assert request.priority == 0


def test_a_tenant_that_only_the_edge_knows_yet_is_served_as_the_edge_says() -> None:
    request = ask("new", 100)
    carry(request, tenancy(new={"tier": "silver", "weight": 3}))
    tenant, lowered = entitle(request, tenancy(acme={"tier": "gold"}))
    assert (tenant.tier, tenant.weight, tenant.quota.concurrency, lowered) == (TierName.SILVER, 3, 64, 63)


def test_what_was_carried_is_replaced_by_the_edge_that_authenticated() -> None:
    request = ask("acme")
    request.entitlement.CopyFrom(common_pb2.Entitlement(tier=common_pb2.TIER_GOLD, weight=999))
    carry(request, Tenancy())
    assert not request.HasField("entitlement")


def test_numbers_that_no_configuration_gives_are_brought_into_range() -> None:
    request = ask("new", 127)
    request.entitlement.CopyFrom(
        common_pb2.Entitlement(tier=common_pb2.TIER_GOLD, weight=2**31, highest_priority=2**30)
    )
    tenant, _ = entitle(request, tenancy(acme={"tier": "gold"}))
    assert (tenant.weight, tenant.highest_priority) == (1000, 127)
    request.entitlement.CopyFrom(common_pb2.Entitlement(tier=common_pb2.TIER_GOLD, weight=0))
    assert entitle(request, tenancy(acme={"tier": "gold"}))[0].weight == 1


def test_strangers_and_foreign_models_are_refused() -> None:
    known = tenancy(acme={"tier": "gold", "allowed_models": ["a", "b"]})
    with pytest.raises(PermissionDenied, match="'bolt' is not configured"):
        entitle(ask("bolt"), known)
    with pytest.raises(PermissionDenied, match="may use: a, b") as refused:
        entitle(ask("acme", model="m"), known)
    assert (refused.value.name, refused.value.row.http, refused.value.param) == ("permission_denied", 403, "model")
    entitle(ask("acme", model="b"), known)
    with pytest.raises(PermissionDenied, match="may use: none"):
        entitle(ask("acme"), tenancy(acme={"tier": "gold", "allowed_models": []}))


def test_what_travels_is_what_the_tenant_has() -> None:
    tenant = tenancy(acme={"tier": "gold"}).tenants["acme"]
    assert entitlement_of(tenant) == common_pb2.Entitlement(tier=common_pb2.TIER_GOLD, weight=4, highest_priority=127)
