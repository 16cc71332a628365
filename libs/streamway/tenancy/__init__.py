"""Tenants: who they are, which tier they have, what they may use; read from one file and read again when it changes.

`streamway.tenancy.watching` has what reads it again; everything named here does no I/O but `load_tenancy` and `read_keys`.
"""

from streamway.tenancy.entitlement import carry, entitle, entitlement_of
from streamway.tenancy.keys_file import hash_key, read_keys
from streamway.tenancy.loading import build, load_tenancy
from streamway.tenancy.model import (
    ANONYMOUS_TENANT,
    DEFAULT_TIERS,
    TENANT_NAME,
    UNLIMITED,
    JwtRules,
    Quota,
    SemanticLookup,
    Tenancy,
    Tenant,
    Tier,
    TierName,
    of_tier,
    without_limits,
)
from streamway.tenancy.rows import check

__all__ = [
    "ANONYMOUS_TENANT",
    "DEFAULT_TIERS",
    "TENANT_NAME",
    "UNLIMITED",
    "JwtRules",
    "Quota",
    "SemanticLookup",
    "Tenancy",
    "Tenant",
    "Tier",
    "TierName",
    "build",
    "carry",
    "check",
    "entitle",
    "entitlement_of",
    "hash_key",
    "load_tenancy",
    "of_tier",
    "read_keys",
    "without_limits",
]
