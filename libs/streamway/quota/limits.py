"""What is asked of a quota and what it answers.

A *slot* is one live generation; it is held under a lease. The *buckets* hold requests and tokens: a minute's worth at most,
filled evenly. Each exists for the tenant and for each of its models that has limits of its own; a demand must find room in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streamway.tenancy import UNLIMITED, Quota

MINUTE_MS: Final = 60_000
# When a slot will be free nobody knows.
SLOT_RETRY_S: Final = 1.0


class Kind(StrEnum):
    """What ran out; a label of metrics."""

    CONCURRENCY = "concurrency"
    REQUESTS = "requests_per_minute"
    TOKENS = "tokens_per_minute"


@dataclass(frozen=True, slots=True)
class Demand:
    """One generation that wants in. `id` is the reservation's name, `tokens` the estimate of prompt and answer, ≥ 0."""

    id: str
    tenant: str
    model: str
    tokens: int
    quota: Quota = UNLIMITED
    model_quota: Quota = UNLIMITED

    @property
    def quotas(self) -> tuple[Quota, Quota]:
        """The tenant's, then the one for this model."""
        return self.quota, self.model_quota


@dataclass(frozen=True, slots=True)
class Level:
    """What one scope has left, in requests and tokens; below zero: in debt. None: no such limit."""

    requests: float | None = None
    tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """What ran out, and whether of the model's or of the tenant's. `retry_s` None: it is larger than the bucket ever is."""

    kind: Kind
    of_model: bool
    retry_s: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: `refusal` None: reserved. `levels` are of the tenant and the model, after the reservation."""

    refusal: Refusal | None
    levels: tuple[Level, Level]


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit a minute, what is left of it (≥ 0), and the seconds until all of it would be there again."""

    limit: int
    remaining: int
    reset_s: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a client is told. None: no limit."""

    requests: Budget | None = None
    tokens: Budget | None = None


def allowance(demand: Demand, levels: tuple[Level, Level]) -> Allowance:
    """Of each kind the budget with less left, the tenant's or the model's."""
    requests = [
        _budget(quota.requests_per_minute, level.requests)
        for quota, level in zip(demand.quotas, levels, strict=True)
        if quota.requests_per_minute is not None and level.requests is not None
    ]
    tokens = [
        _budget(quota.tokens_per_minute, level.tokens)
        for quota, level in zip(demand.quotas, levels, strict=True)
        if quota.tokens_per_minute is not None and level.tokens is not None
    ]

    def remaining(budget: Budget) -> int:
        return budget.remaining

    return Allowance(min(requests, key=remaining, default=None), min(tokens, key=remaining, default=None))


def _budget(limit: int, level: float) -> Budget:
    return Budget(limit, max(0, int(level)), max(0.0, (limit - level) / limit * 60))
