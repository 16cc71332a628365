"""Writing a response as server-sent events."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiohttp import HttpVersion11, web

from services.edge.io.gate import RESTORE_ID, Caller, request_id
from services.edge.io.heartbeats import HeartbeatWheel
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import ChunkedOutbox, Flusher, Outbox
from services.edge.io.responses_desk import Reading
from services.edge.settings import EdgeSettings
from streamway.errors import SlowConsumer

_log = structlog.get_logger("edge")

_STREAM: Final = "responses_stream"


class ResponseStreams:
    """Writes the streams of all readings."""

    def __init__(self, flusher: Flusher, wheel: HeartbeatWheel, metrics: EdgeMetrics, settings: EdgeSettings) -> None:
        self._flusher = flusher
        self._wheel = wheel
        self._metrics = metrics
        self._hold_s = settings.hold_status_s
        self._most_silent_s = settings.heartbeat_s / 2

    async def send(
        self, request: web.Request, caller: Caller, reading: Reading, *, closing: bool
    ) -> web.StreamResponse:
        """Writes until the reading has ended. Raises its error where that came before anything was sent. `closing`: the
        process stops, and the connection serves no other request."""
        reader = reading.reader
        await asyncio.wait({reader.accepted}, timeout=self._most_silent_s)
        if reader.accepted.done() and not reader.state.ended:
            await asyncio.wait({reader.begun}, timeout=min(self._hold_s, self._most_silent_s))
        if reader.failed is not None and not (reader.state.ended and (reading.resumed or reader.state.spoken)):
            raise reader.failed
        self._metrics.connections.labels(_STREAM).inc()
        outbox: Outbox | None = None
        try:
            response = await self._prepared(request, caller, reading)
            outbox = self._outbox(request, reading)
            reader.send_to(outbox)
            self._wheel.add(reader)
            await asyncio.wait({reader.done})
            outbox.flush()
            self._wheel.remove(reader)
            if closing:
                response.force_close()
            await response.write_eof()
            return response
        finally:
            self._wheel.remove(reader)
            if outbox is not None:
                outbox.close()
            self._metrics.connections.labels(_STREAM).dec()

    async def _prepared(self, request: web.Request, caller: Caller, reading: Reading) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Accel-Buffering"] = "no"
        response.headers["x-request-id"] = request_id(request)
        head(response, caller, reading)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await response.prepare(request)
        return response

    def _outbox(self, request: web.Request, reading: Reading) -> Outbox:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError

        def cut(error: SlowConsumer) -> None:
            _log.warning("slow_consumer", surface=_STREAM, problem=error.message)
            transport.abort()

        kind = ChunkedOutbox if request.version >= HttpVersion11 else Outbox
        return kind(transport, self._flusher, _STREAM, cut, reading.generation)


def head(response: web.StreamResponse, caller: Caller, reading: Reading) -> None:
    """The headers of every answer about a response that is being read."""
    headers = response.headers
    headers["x-streamway-generation"] = reading.reader.state.generation
    if reading.generation.session:
        headers["x-streamway-session"] = reading.generation.session
    headers["traceparent"] = caller.context.traceparent
    if reading.reader.worker:
        headers["x-streamway-worker"] = reading.reader.worker
    if reading.restore_id:
        headers[RESTORE_ID] = reading.restore_id
    if reading.reader.cache:
        headers["x-streamway-cache"] = reading.reader.cache
