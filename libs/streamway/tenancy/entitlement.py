"""What a tenant is entitled to, as it travels: edge → router → worker, in the request.

edge                      router                                    worker
its tenant, from key ──►  its own row of the tenant, else what ──►  weight and tier of what waits
or token                  a mesh peer carried, else the default
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from streamway.errors import PermissionDenied
from streamway.tenancy.model import Tenancy, Tenant, TierName, of_tier
from streamway.v1 import common_pb2

_TO_PROTO: Final = {
    TierName.GOLD: common_pb2.TIER_GOLD,
    TierName.SILVER: common_pb2.TIER_SILVER,
    TierName.BRONZE: common_pb2.TIER_BRONZE,
}
_FROM_PROTO: Final = {value: name for name, value in _TO_PROTO.items()}
_MOST_WEIGHT: Final = 1000


def entitlement_of(tenant: Tenant) -> common_pb2.Entitlement:
    """As it travels."""
    return common_pb2.Entitlement(
        tier=_TO_PROTO[tenant.tier], weight=tenant.weight, highest_priority=tenant.highest_priority
    )


def carry(request: common_pb2.GenerationRequest, tenancy: Tenancy) -> None:
    """Writes into a request what its tenant is entitled to here; nothing where no tenants are configured."""
    request.ClearField("entitlement")
    tenant = tenancy.tenant(request.tenant) if tenancy.configured else None
    if tenant is not None:
        request.entitlement.CopyFrom(entitlement_of(tenant))


def entitle(request: common_pb2.GenerationRequest, tenancy: Tenancy) -> tuple[Tenant, int | None]:
    """Settles what the tenant of a request has, and holds the request to it: its tenant, and the priority it was lowered to.

    The request must have its authenticated tenant, and an entitlement only from a mesh peer; it gets the one that counts.
    Raises PermissionDenied.
    """
    tenant = _resolved(request, tenancy)
    if tenant is None:
        raise PermissionDenied.tenant(request.tenant)
    if not tenant.allows(request.model):
        raise PermissionDenied.model(request.model, tenant.allowed_models or ())
    request.entitlement.CopyFrom(entitlement_of(tenant))
    if request.priority <= tenant.highest_priority:
        return tenant, None
    request.priority = tenant.highest_priority
    return tenant, tenant.highest_priority


def _resolved(request: common_pb2.GenerationRequest, tenancy: Tenancy) -> Tenant | None:
    found = tenancy.tenants.get(request.tenant)
    if found is not None:
        return found
    carried = request.entitlement
    tier = _FROM_PROTO.get(carried.tier)
    if tier is None:
        return tenancy.tenant(request.tenant)
    # An edge knows it and this process does not, or not yet: a moment in which files are renewed one after the other.
    weight = min(max(carried.weight, 1), _MOST_WEIGHT)
    highest = min(max(carried.highest_priority, -128), 127)
    return replace(of_tier(request.tenant, tenancy.tiers[tier]), weight=weight, highest_priority=highest)
