"""`POST /v1/cache/entries/{entry}/feedback`: what somebody thought of an answer from the cache."""

from __future__ import annotations

from aiohttp import web

from services.edge.core import opinion
from services.edge.io.gate import Gate
from services.edge.io.http_errors import json_response
from services.edge.io.routers import Routers


class FeedbackSurface:
    """Opinions on cached answers."""

    def __init__(self, gate: Gate, routers: Routers) -> None:
        self._gate = gate
        self._routers = routers

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Passes one on. 404 for an entry that the caller's tenant does not have, whoever else may have it."""
        caller = self._gate.admit(request)
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send the feedback as 'Content-Type: application/json'")
        good = opinion.parse(await request.read())
        entry = request.match_info["entry"]
        answer = await self._routers.give_feedback(entry, caller.identity.tenant, good=good)
        if not answer.asked:
            raise web.HTTPServiceUnavailable(text="no cache answers now; try again")
        if not answer.known:
            raise web.HTTPNotFound(text="there is no such entry in the cache")
        return json_response({"entry": entry, "object": "cache.feedback", "good": good})
