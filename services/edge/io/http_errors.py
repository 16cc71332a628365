"""Every HTTP error in OpenAI's shape, aiohttp's own included, with the request id in header and body."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import structlog
from aiohttp import web

from services.edge.core import rate_limits
from services.edge.io.gate import request_id
from services.edge.io.metrics import EdgeMetrics
from streamway.errors import Internal, StreamwayError, TooLarge, to_openai_body

_log = structlog.get_logger("edge")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ErrorsMiddleware:
    """Outermost: turns what handlers raise into responses and counts them."""

    def __init__(self, metrics: EdgeMetrics, body_limit: int) -> None:
        self._metrics = metrics
        self._body_limit = body_limit

    def build(self) -> Any:
        """The middleware as aiohttp wants it."""

        @web.middleware
        async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                response = await handler(request)
            except StreamwayError as problem:
                response = error_response(problem, request_id(request))
            except web.HTTPRequestEntityTooLarge:
                too_large = TooLarge("the request body", self._body_limit, "STREAMWAY_MAX_MESSAGE_BYTES")
                response = error_response(too_large, request_id(request))
            except web.HTTPException as refusal:
                response = _of_aiohttp(refusal, request_id(request))
            except (ConnectionError, TimeoutError):
                # The client went away in the middle; there is nobody to tell.
                raise
            except Exception:  # noqa: BLE001 — the last line of defence: logged, and told without its text
                _log.exception("request_failed", path=request.path, request_id=request_id(request))
                response = error_response(Internal(request_id(request)), request_id(request))
            self._metrics.responses.labels(str(response.status)).inc()
            if not response.prepared:
                response.headers["x-request-id"] = request_id(request)
            return response

        return errors


def error_response(problem: StreamwayError, id_: str) -> web.Response:
    """The response for an error of the catalogue."""
    response = json_response(to_openai_body(problem, id_), problem.row.http)
    if problem.retry_after_s is not None and problem.row.http in (429, 502, 503):
        response.headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after_s)))
    response.headers.update(rate_limits.of_refusal(problem.metadata))
    if problem.row.http == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def answer_response(answer: Mapping[str, Any]) -> web.Response:
    """A whole answer: 200, or 206 and a header where the mesh has cut it; in another header what it cost, where that is known."""
    why = answer.get("streamway", {}).get("truncated", "")
    response = json_response(answer, 206 if why else 200)
    if why:
        response.headers["x-streamway-truncated"] = why
    cost = (answer.get("usage") or {}).get("cost")
    if cost is not None:
        response.headers["x-streamway-cost"] = f"{cost:.8f}"
    return response


def json_response(body: Any, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _of_aiohttp(refusal: web.HTTPException, id_: str) -> web.Response:
    """aiohttp's 404, 405, 415 and so on: its status and headers, our body."""
    text = refusal.text if refusal.text and not refusal.text[:3].isdigit() else refusal.reason
    if refusal.status == 404 and text == refusal.reason:
        text = "there is nothing at this address; the API is under /v1"
    elif refusal.status == 405:
        text = f"this method is not allowed here; allowed: {refusal.headers.get('Allow', '')}"
    error = {
        "message": text,
        "type": "invalid_request_error" if refusal.status < 500 else "server_error",
        "param": None,
        "code": refusal.reason.lower().replace(" ", "_"),
    }
    response = json_response({"error": error, "request_id": id_, "retryable": False}, refusal.status)
    if "Allow" in refusal.headers:
        response.headers["Allow"] = refusal.headers["Allow"]
    return response
