"""Counts a request against what its tenant may use."""

from __future__ import annotations

from services.router.core.estimate import wanted_of
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.quotas import Quotas
from streamway.quota import Demand
from streamway.tenancy import UNLIMITED
from streamway.v1 import common_pb2


class Metering:
    """An opener that reserves before `inner` begins anything, and gives back what comes to nothing.

    Inside idempotency, since what attaches to an earlier generation is not another one; outside the cache, so that one step in
    the store decides: a hit costs a request, and gives slot and tokens back (docs/adr/0026-quota-by-reservation.md).
    """

    def __init__(self, inner: Opener, quotas: Quotas, expected_output_tokens: int) -> None:
        self._inner = inner
        self._quotas = quotas
        self._expected = expected_output_tokens

    async def open(self, ask: Ask) -> Opened:
        """Raises QuotaExceeded, RequestTooLargeForQuota, and what `inner` raises."""
        request, tenant = ask.request, ask.tenant
        if tenant is None or (tenant.quota == UNLIMITED and tenant.model_quota(request.model) == UNLIMITED):
            return await self._inner.open(ask)
        wanted = wanted_of(request, ask.size_bytes, ask.body, self._expected)
        limits = tenant.quota, tenant.model_quota(request.model)
        demand = Demand(request.generation, request.tenant, request.model, wanted.tokens, *limits)
        strict = request.durability == common_pb2.DURABILITY_STRICT
        ask.allowance = await self._quotas.reserve(demand, wanted.prompt_tokens, strict=strict)
        try:
            opened = await self._inner.open(ask)
        except BaseException:
            self._quotas.close(demand.id)
            raise
        if opened.attached_to:
            # Another router had begun it before it died, and reserved for it.
            self._quotas.close(demand.id)
        elif opened.place is None or opened.follows:
            # It uses no slot and no token of its own.
            self._quotas.answered(demand.id)
        return opened
