"""`GET /v1/tenants`: limits and what is used of them; of all tenants for operators, else of the caller's own."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, Final

from aiohttp import web
from redis.exceptions import RedisError

from services.edge.io.gate import Gate
from services.edge.io.http_errors import json_response
from streamway.errors import StoreUnavailable
from streamway.quota import Usage, read_usage
from streamway.tenancy import Quota, Tenant
from streamway.tenancy.watching import TenancyWatch
from streamway.valkey.connection import Valkey

# Tenants, and models with limits of their own for each.
_MOST: Final = 200
_MOST_MODELS: Final = 20
_ANSWER_S: Final = 2.0


class TenantsSurface:
    """Reads the store's counts; it changes none. `valkey` None: this edge does not look into the store."""

    def __init__(self, gate: Gate, tenants: TenancyWatch, valkey: Valkey | None) -> None:
        self._gate = gate
        self._tenants = tenants
        self._valkey = valkey

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The rows by name. Raises StoreUnavailable."""
        caller = self._gate.admit(request)
        tenancy = self._tenants.tenancy
        operates = self._gate.operates(caller)
        names = {caller.identity.tenant}
        if operates:
            # Those without a row are known only when they call.
            names |= {*sorted(tenancy.tenants)[:_MOST], *sorted({*tenancy.keys.values()})[:_MOST]}
        found = [tenant for name in sorted(names)[:_MOST] if (tenant := tenancy.tenant(name)) is not None]
        rows = await self._rows(found)
        response = json_response({"operator": operates, "mine": caller.identity.tenant, "tenants": rows})
        response.headers["Cache-Control"] = "no-store"
        return response

    async def _rows(self, tenants: list[Tenant]) -> list[dict[str, Any]]:
        asked = [
            (tenant.name, model, quota)
            for tenant in tenants
            for model, quota in [("", tenant.quota), *sorted(tenant.model_quotas.items())[:_MOST_MODELS]]
        ]
        if self._valkey is None:
            raise StoreUnavailable
        try:
            async with asyncio.timeout(_ANSWER_S):
                usages = await read_usage(self._valkey, asked)
        except (RedisError, OSError, TimeoutError):
            raise StoreUnavailable from None
        used = {(name, model): _shown(quota, usage) for (name, model, quota), usage in zip(asked, usages, strict=True)}
        return [
            {
                "name": tenant.name,
                "tier": tenant.tier.value,
                "weight": tenant.weight,
                "highest_priority": tenant.highest_priority,
                **used[tenant.name, ""],
                "models": [
                    {"model": model, **used[tenant.name, model]} for model in sorted(tenant.model_quotas)[:_MOST_MODELS]
                ],
            }
            for tenant in tenants
        ]


def _shown(quota: Quota, usage: Usage) -> dict[str, Any]:
    return {"limits": asdict(quota), "used": asdict(usage)}
