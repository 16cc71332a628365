"""Holds whoever calls a worker directly to its tenant's limits: in the same buckets and slots that routers reserve from.

A slot is renewed while its call runs and expires where this process dies. Nobody else's calls touch the store; while it is away
calls of tenants with limits are refused, since only a router knows what was left last.
"""

from __future__ import annotations

import asyncio
from typing import Final

from services.inference_adapter.core.estimate import estimated_prompt, estimated_tokens
from streamway.errors import StoreUnavailable
from streamway.quota import Demand, charge, renew, reserve, send_settle
from streamway.runtime.ids import new_secret_id
from streamway.tenancy import UNLIMITED, Tenant
from streamway.v1 import common_pb2
from streamway.valkey.link import Link
from streamway.valkey.session import LinkLost, Reply, StoreRefused

# Routers with a shorter lease cut longer ones: renewed well within theirs.
_RENEW_S: Final = 1.0
_ANSWER_S: Final = 2.0


class DirectQuota:
    """The reservations of direct calls. `lease_s` and `share`: as the routers have them."""

    def __init__(self, link: Link, lease_s: float, share: float) -> None:
        self._link = link
        self._lease_ms = int(lease_s * 1000)
        self._share = share
        self._held: dict[str, Demand] = {}

    async def reserve(self, request: common_pb2.GenerationRequest, tenant: Tenant) -> Demand | None:
        """Takes a slot, a request and the estimated tokens; None where there are no limits.

        Raises QuotaExceeded, RequestTooLargeForQuota, StoreUnavailable.
        """
        limits = tenant.quota, tenant.model_quota(request.model)
        if limits == (UNLIMITED, UNLIMITED):
            return None
        # Its own name: the caller may have given the generation one that is reserved already.
        name = f"direct/{new_secret_id()}"
        demand = Demand(name, request.tenant, request.model, estimated_tokens(request), *limits)
        session = self._link.current
        if session is None:
            raise StoreUnavailable
        try:
            async with asyncio.timeout(_ANSWER_S):
                verdict = await reserve(session, demand, self._lease_ms, self._share)
        except (TimeoutError, LinkLost, StoreRefused):
            raise StoreUnavailable from None
        refused = charge.refusal(demand, verdict, self._share)
        if refused is not None:
            raise refused
        self._held[demand.id] = demand
        return demand

    def ended(
        self, demand: Demand | None, request: common_pb2.GenerationRequest, last: common_pb2.Event | None
    ) -> None:
        """Gives the slot back, and what was not used. `last` is the last event of the call; None: it was never begun."""
        if demand is None:
            return
        del self._held[demand.id]
        session = self._link.current
        if session is None:
            return  # the slot expires, the charge stays
        due = (
            charge.settle(last, demand.tokens, estimated_prompt(request))
            if last is not None
            else charge.close(demand.tokens)
        )
        send_settle(session, demand, due.requests_back, due.tokens_back, _ignore)

    async def run(self) -> None:
        """Renews the slots of what runs until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_S)
            for demand in list(self._held.values()):
                session = self._link.current
                if session is None:
                    break
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        await renew(session, [demand], self._lease_ms)
                except (TimeoutError, LinkLost, StoreRefused):
                    break


def _ignore(_: Reply) -> None:
    """A settlement that is lost leaves the slot to expire."""
