"""`GET /v1/failures` and `POST /v1/failures/{worker}`: an operator has a worker of a local mesh killed or paused, and
sees its streams go on.

Only where the supervisor has opened its socket for that. A browser sends such a POST only for a page of this very edge: the
body must be JSON, which a foreign page cannot send unasked, and its origin must be ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from services.edge.io.gate import Gate
from services.edge.io.http_errors import json_response

_ANSWER_S: Final = 5.0
_MOST_BYTES: Final = 1024


class FailuresSurface:
    """Passes deeds on to the supervisor. `socket` None: there is none that would listen."""

    def __init__(self, gate: Gate, socket: Path | None) -> None:
        self._gate = gate
        self._socket = socket

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The workers, and how each is. Raises PermissionDenied."""
        self._gate.admit_operator(request)
        if self._socket is None:
            return _unkept({"available": False, "workers": []})
        return _unkept({"available": True, **await self._ask("GET", "/workers", None)})

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Does something to one worker."""
        self._gate.admit_operator(request)
        _refuse_other_pages(request)
        if self._socket is None:
            raise web.HTTPNotFound(text="failures cannot be tried here; start a local mesh with --try-failure on")
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send the deed as 'Content-Type: application/json'")
        if (request.content_length or 0) > _MOST_BYTES:
            raise web.HTTPRequestEntityTooLarge(_MOST_BYTES, request.content_length or 0)
        body = (await request.content.read(_MOST_BYTES))[:_MOST_BYTES]
        worker = request.match_info["worker"]
        return _unkept({"available": True, **await self._ask("POST", f"/workers/{worker}", body)})

    async def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(self._socket)), timeout=aiohttp.ClientTimeout(_ANSWER_S)
                ) as session,
                session.request(method, f"http://supervisor{path}", data=body) as answer,
            ):
                if answer.status == 200:
                    told: dict[str, Any] = await answer.json()
                    return told
                refusal: type[web.HTTPError] | None = {
                    400: web.HTTPBadRequest,
                    404: web.HTTPNotFound,
                    409: web.HTTPConflict,
                }.get(answer.status)
                text = (await answer.text())[:200]
        except (aiohttp.ClientError, OSError, TimeoutError):
            refusal = web.HTTPServiceUnavailable
            text = "the supervisor does not answer; is the mesh still there?"
        raise (refusal or web.HTTPBadGateway)(text=text)


def _refuse_other_pages(request: web.Request) -> None:
    """Also those of STREAMWAY_EDGE_ALLOWED_ORIGINS: they may ask models, not kill workers."""
    origin, site = request.headers.get("Origin", ""), request.headers.get("Sec-Fetch-Site", "same-origin")
    same = not origin or origin.lower().partition("://")[2] == request.headers.get("Host", "").lower()
    if not same or site not in ("same-origin", "none"):
        raise web.HTTPForbidden(text="only the console of this edge may do that")


def _unkept(body: dict[str, Any]) -> web.Response:
    response = json_response(body)
    response.headers["Cache-Control"] = "no-store"
    return response
