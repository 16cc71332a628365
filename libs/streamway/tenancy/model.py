"""Tenants, their tiers and what they may use: plain values, made whole by `loading` and swapped as a whole.

Tenancy ──► Tenant  its tier's numbers, or its own where its row says otherwise
        └─► keys    sha256 of an API key → tenant
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

ANONYMOUS_TENANT: Final = "anonymous"
TENANT_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class TierName(StrEnum):
    """A class of service."""

    GOLD = "gold"
    SILVER = "silver"
    BRONZE = "bronze"


class SemanticLookup(StrEnum):
    """When the semantic level of the cache is asked for a request that wants it."""

    BESIDE = "beside"  # while a worker has the request: a miss costs no first token, and what is late is dropped
    BEFORE = "before"  # before a worker gets the request: no engine begins in vain
    OFF = "off"  # never


# Where a tenant's similarity is not a number: found from comparisons so that a budget is kept, or the encoder's default.
ThresholdWord: TypeAlias = Literal["budget", "static"]
# What the cache's semantic level refuses by; the cache has a rule under each of these names.
CACHE_RULES: Final = (
    "script",
    "numbers",
    "dates",
    "negation",
    "formats",
    "antonyms",
    "contrasts",
    "scope",
    "entities",
    "order",
    "direction",
    "swap",
    "insertion",
)


@dataclass(frozen=True, slots=True)
class Quota:
    """What may be used; None: no limit. `concurrency` counts generations that live at once; tokens are prompt and answer."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


UNLIMITED: Final = Quota()


@dataclass(frozen=True, slots=True)
class Tier:
    """What the tenants of a tier have unless their row says otherwise.

    `weight` is the share of a worker's window, ≥ 1, against the weights of the others. `buffered_bytes` is soft: over it the
    tenant's own buffers, contexts and cache entries are trimmed first; None: no bound. A request that asks for more than
    `highest_priority` (−128 … 127) is lowered to it.
    """

    name: TierName
    weight: int
    highest_priority: int
    buffered_bytes: int | None
    quota: Quota
    semantic_lookup: SemanticLookup = SemanticLookup.BESIDE
    semantic_threshold: float | ThresholdWord | None = None
    semantic_rules_off: frozenset[str] | None = None


# docs/design.md §7.
DEFAULT_TIERS: Final[Mapping[TierName, Tier]] = MappingProxyType(
    {
        TierName.GOLD: Tier(TierName.GOLD, 4, 127, 512_000_000, Quota(concurrency=256)),
        TierName.SILVER: Tier(TierName.SILVER, 2, 63, 256_000_000, Quota(concurrency=64)),
        TierName.BRONZE: Tier(TierName.BRONZE, 1, 0, 128_000_000, Quota(concurrency=16)),
    }
)


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant with everything it is entitled to, its tier's defaults filled in.

    `model_quotas` hold beside `quota`, each for one model by the name it is asked for. `allowed_models` None: all.
    `semantic_threshold` and `semantic_rules_off` None: what the cache's settings say.
    """

    name: str
    tier: TierName
    weight: int
    highest_priority: int
    buffered_bytes: int | None = None
    quota: Quota = UNLIMITED
    model_quotas: Mapping[str, Quota] = field(default_factory=dict)
    allowed_models: frozenset[str] | None = None
    semantic_lookup: SemanticLookup = SemanticLookup.BESIDE
    semantic_threshold: float | ThresholdWord | None = None
    semantic_rules_off: frozenset[str] | None = None

    def allows(self, model: str) -> bool:
        """Whether it may ask this model."""
        return self.allowed_models is None or model in self.allowed_models

    def model_quota(self, model: str) -> Quota:
        """What it may use of one model, within what it may use at all."""
        return self.model_quotas.get(model, UNLIMITED)


def of_tier(name: str, tier: Tier) -> Tenant:
    """A tenant that is no more than one of its tier."""
    return Tenant(
        *(name, tier.name, tier.weight, tier.highest_priority, tier.buffered_bytes, tier.quota),
        semantic_lookup=tier.semantic_lookup,
        semantic_threshold=tier.semantic_threshold,
        semantic_rules_off=tier.semantic_rules_off,
    )


def without_limits(name: str) -> Tenant:
    """What a tenant is while nobody has configured any: nothing is held back from it."""
    return Tenant(name, TierName.GOLD, DEFAULT_TIERS[TierName.GOLD].weight, 127)


@dataclass(frozen=True, slots=True)
class JwtRules:
    """Which JSON Web Tokens are believed, and what of them is used.

    `keys` by `kid`: the secret's bytes under "" for HS256, public RSA keys for RS256. `leeway_s` is how far clocks may differ.
    """

    issuer: str
    audience: str
    algorithm: Literal["HS256", "RS256"]
    tenant_claim: str
    session_claim: str
    leeway_s: float
    keys: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tenancy:
    """All tenants and keys of one moment.

    `configured`: there is a tenancy section or file; without one every tenant is unlimited. `default_tier` is what an
    authenticated tenant without a row gets; None: it may do nothing. `anonymous` names the tenant of callers without
    credentials, empty when they are refused. `files` are those it was read from.
    """

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    tiers: Mapping[TierName, Tier] = field(default_factory=lambda: DEFAULT_TIERS)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    jwt: JwtRules | None = None
    configured: bool = False
    default_tier: Tier | None = None
    anonymous: str = ANONYMOUS_TENANT
    files: tuple[Path, ...] = ()

    @property
    def has_credentials(self) -> bool:
        """Somebody can show who they are."""
        return bool(self.keys) or self.jwt is not None

    def buffered_bytes(self, name: str) -> int | None:
        """What a tenant may have buffered in one process; None: no bound, or not known."""
        found = self.tenant(name)
        return found.buffered_bytes if found is not None else None

    def tenant(self, name: str) -> Tenant | None:
        """What a tenant is entitled to; None for one that may do nothing."""
        found = self.tenants.get(name)
        if found is not None:
            return found
        if self.default_tier is not None:
            return of_tier(name, self.default_tier)
        if not self.configured or name == ANONYMOUS_TENANT:
            return without_limits(name)
        return None
