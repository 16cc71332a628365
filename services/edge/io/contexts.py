"""`DELETE /v1/contexts/{id}`: a kept conversation is forgotten."""

from __future__ import annotations

from aiohttp import web

from services.edge.io.gate import Gate
from services.edge.io.http_errors import json_response
from services.edge.io.routers import Routers


class ContextsSurface:
    """Kept conversations, apart from their turns."""

    def __init__(self, gate: Gate, routers: Routers) -> None:
        self._gate = gate
        self._routers = routers

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Deletes one. Idempotent: `deleted` says whether there was one."""
        caller = self._gate.admit(request)
        id_ = request.match_info["id"]
        found = await self._routers.forget_context(id_, caller.identity.tenant)
        return json_response({"id": id_, "object": "context", "deleted": found})
