"""The arithmetic of one tenant's quota, in one process: what counts while the store is away, and the model of the store's script.

      reserve ──► settle   what was used counts; more than reserved is debt, less comes back
              ├─► close    nothing was used, and the request does not count either
              └─► abandon  nobody knows what was used: the charge stays. A slot that expires does this by itself

Refused demands change nothing. `store` does the same in Lua; a test runs both side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamway.quota.bucket import Bucket
from streamway.quota.limits import SLOT_RETRY_S, Demand, Kind, Level, Refusal, Verdict
from streamway.tenancy import Quota


@dataclass(slots=True)
class _Scope:
    """Of the tenant, or of one of its models. `slots`: when each reservation's lease ends, in ms."""

    slots: dict[str, float] = field(default_factory=dict)
    buckets: dict[Kind, Bucket] = field(default_factory=dict)

    def level(self, kind: Kind, limit: int | None, now_ms: float) -> float | None:
        if limit is None:
            return None
        return self.buckets.setdefault(kind, Bucket(float(limit), now_ms)).refill(limit, now_ms)

    def levels(self, quota: Quota, now_ms: float) -> Level:
        return Level(
            self.level(Kind.REQUESTS, quota.requests_per_minute, now_ms),
            self.level(Kind.TOKENS, quota.tokens_per_minute, now_ms),
        )

    def give(self, quota: Quota, requests: float, tokens: float, now_ms: float) -> None:
        """Puts into the buckets, or takes out of them."""
        wanted = ((Kind.REQUESTS, quota.requests_per_minute, requests), (Kind.TOKENS, quota.tokens_per_minute, tokens))
        for kind, limit, amount in wanted:
            level = self.level(kind, limit, now_ms)
            if limit is not None and level is not None:
                self.buckets[kind].level = min(float(limit), level + amount)

    def expire(self, now_ms: float, lease_ms: float) -> None:
        """Nobody's lease lies further ahead than its length: the clock went back, and it counts from now."""
        self.slots = {id_: min(until, now_ms + lease_ms) for id_, until in self.slots.items() if until > now_ms}


class Account:
    """One tenant. `share` (0 … 1] of what is left may go to one request; slots end `lease_ms` after their last renewal."""

    def __init__(self, lease_ms: float, share: float) -> None:
        self._lease_ms = lease_ms
        self._share = share
        self._scopes: dict[str, _Scope] = {}

    def held(self, now_ms: float, model: str = "") -> int:
        """Slots that are taken, of the tenant or of one model."""
        scope = self._scope(model)
        scope.expire(now_ms, self._lease_ms)
        return len(scope.slots)

    def start_from(
        self, demand: Demand, levels: tuple[Level, Level], slots: list[tuple[str, str]], now_ms: float
    ) -> None:
        """Begins with what is known from elsewhere: levels, and the reservations (id, model) that are held."""
        for scope, level in zip(self._of(demand), levels, strict=True):
            for kind, amount in ((Kind.REQUESTS, level.requests), (Kind.TOKENS, level.tokens)):
                if amount is not None:
                    scope.buckets.setdefault(kind, Bucket(amount, now_ms))
        for id_, model in slots:
            self._scope("").slots[id_] = self._scope(model).slots[id_] = now_ms + self._lease_ms

    def reserve(self, demand: Demand, now_ms: float) -> Verdict:
        """Takes a slot, a request and the estimated tokens, or nothing. The same id again is answered as the first time."""
        scopes = self._of(demand)
        for scope in scopes:
            scope.expire(now_ms, self._lease_ms)
        if demand.id in scopes[0].slots:
            return Verdict(None, self._levels(demand, now_ms))
        refusal = self._refusal(demand, now_ms)
        if refusal is None:
            for scope, quota in zip(scopes, demand.quotas, strict=True):
                scope.slots[demand.id] = now_ms + self._lease_ms
                scope.give(quota, -1, -demand.tokens, now_ms)
        return Verdict(refusal, self._levels(demand, now_ms))

    def settle(self, demand: Demand, requests_back: int, tokens_back: int, now_ms: float) -> bool:
        """Frees the slot and gives back what was not used (below zero: takes more). False: it was ended before, or expired."""
        scopes = self._of(demand)
        for scope in scopes:
            scope.expire(now_ms, self._lease_ms)
        if scopes[0].slots.pop(demand.id, None) is None:
            return False
        scopes[1].slots.pop(demand.id, None)
        for scope, quota in zip(scopes, demand.quotas, strict=True):
            scope.give(quota, requests_back, tokens_back, now_ms)
        return True

    def renew(self, demand: Demand, now_ms: float) -> bool:
        """Lengthens the lease. One that has expired takes a slot again where there is room; False where there is none."""
        scopes = self._of(demand)
        held = True
        for scope, quota in zip(scopes, demand.quotas, strict=True):
            scope.expire(now_ms, self._lease_ms)
            if demand.id in scope.slots or quota.concurrency is None or len(scope.slots) < quota.concurrency:
                scope.slots[demand.id] = now_ms + self._lease_ms
            else:
                held = False
        return held

    def _refusal(self, demand: Demand, now_ms: float) -> Refusal | None:
        parts = list(zip(self._of(demand), demand.quotas, (False, True), strict=True))
        for _, quota, of_model in parts:
            if quota.tokens_per_minute is not None and demand.tokens > self._share * quota.tokens_per_minute:
                return Refusal(Kind.TOKENS, of_model, None)
        for scope, quota, of_model in parts:
            if quota.concurrency is not None and len(scope.slots) >= quota.concurrency:
                return Refusal(Kind.CONCURRENCY, of_model, SLOT_RETRY_S)
            requests, limit = scope.level(Kind.REQUESTS, quota.requests_per_minute, now_ms), quota.requests_per_minute
            if requests is not None and limit is not None and requests < 1:
                return Refusal(Kind.REQUESTS, of_model, (1 - requests) / limit * 60)
            tokens, limit = scope.level(Kind.TOKENS, quota.tokens_per_minute, now_ms), quota.tokens_per_minute
            if tokens is not None and limit is not None and demand.tokens > self._share * tokens:
                return Refusal(Kind.TOKENS, of_model, (demand.tokens / self._share - tokens) / limit * 60)
        return None

    def _levels(self, demand: Demand, now_ms: float) -> tuple[Level, Level]:
        tenant, model = self._of(demand)
        return tenant.levels(demand.quota, now_ms), model.levels(demand.model_quota, now_ms)

    def _of(self, demand: Demand) -> tuple[_Scope, _Scope]:
        return self._scope(""), self._scope(demand.model)

    def _scope(self, model: str) -> _Scope:
        return self._scopes.setdefault(model, _Scope())
