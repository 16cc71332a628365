"""`GET /v1/cache`: what the cache has done for the caller's tenant, for the console."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from google.protobuf.message import Message

from services.edge.io.gate import Gate
from services.edge.io.http_errors import json_response
from services.edge.io.routers import Routers
from streamway.v1 import cache_pb2


class CacheSurface:
    """Nobody is told of another tenant: the tenant is the caller's, whatever the request says."""

    def __init__(self, gate: Gate, routers: Routers) -> None:
        self._gate = gate
        self._routers = routers

    async def get(self, request: web.Request) -> web.StreamResponse:
        """`{"available": false}` where no cache answers."""
        tenant = self._gate.admit(request).identity.tenant
        stats = await self._routers.cache_stats(tenant)
        response = json_response({"available": False} if stats is None else shown(stats))
        # It has words of the tenant's questions.
        response.headers["Cache-Control"] = "no-store"
        return response


def shown(stats: cache_pb2.StatsResponse) -> dict[str, Any]:
    """The counters by their names in the protos."""
    return {"available": True, **_told(stats)}


def _told(message: Message) -> dict[str, Any]:
    """All fields but those that are absent; numbers as numbers, where protobuf's own JSON has texts for long ones."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = dict(value)
        elif field.is_repeated:
            found[field.name] = [_told(each) for each in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = value if field.message_type is None else _told(value)
    return found
