"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from services.edge.io.gate import Caller, Gate
from services.edge.io.http_errors import json_response
from services.edge.io.routers import Routers
from streamway.errors import ModelNotFound
from streamway.v1 import router_pb2


class ModelsSurface:
    """The models that workers serve now, as far as a tenant may use them."""

    def __init__(self, gate: Gate, routers: Routers) -> None:
        self._gate = gate
        self._routers = routers
        self._since = int(time.time())

    async def list(self, request: web.Request) -> web.StreamResponse:
        """All that the caller's tenant may use."""
        models = await self._models(self._gate.admit(request))
        return json_response({"object": "list", "data": [self._shown(model) for model in models]})

    async def one(self, request: web.Request) -> web.StreamResponse:
        """One of them, or 404."""
        name = request.match_info["id"]
        models = await self._models(self._gate.admit(request))
        for model in models:
            if model.name == name:
                return json_response(self._shown(model))
        raise ModelNotFound(name, [model.name for model in models])

    async def _models(self, caller: Caller) -> Sequence[router_pb2.Model]:
        return [model for model in await self._routers.models() if self._gate.allows(caller, model.name)]

    def _shown(self, model: router_pb2.Model) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": model.name,
            "object": "model",
            "created": self._since,
            "owned_by": "streamway-alias" if model.stands_for else "streamway",
            "workers": model.workers,
            "slots": model.slots,
        }
        if model.stands_for:
            shown["stands_for"] = list(model.stands_for)
        if model.context_tokens:
            shown["context_tokens"] = model.context_tokens
        return shown
