"""Writing server-sent events: one response from its head to its end, whatever reads the generation behind it.

    response = await streams.send(request, "sse", reader, generation, {"x-streamway-generation": generation.id})

From here on the status is 200: the caller has waited before for what decides it. Whatever ends this, the reader writes no more
and gets no heartbeat; what becomes of the generation is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

import structlog
from aiohttp import HttpVersion11, web

from services.edge.interfaces import Beating
from services.edge.io.desk import Desk
from services.edge.io.gate import request_id
from services.edge.io.heartbeats import HeartbeatWheel
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import ChunkedOutbox, Flusher, Outbox, Pausing
from streamway.errors import SlowConsumer

_log = structlog.get_logger("edge")


class EventReader(Beating, Protocol):
    """Makes server-sent events of a generation, and keeps them until it may write."""

    @property
    def done(self) -> asyncio.Future[None]:
        """Done when nothing follows."""
        ...

    def send_to(self, outbox: Outbox) -> None:
        """From now on events are written, first those that were kept."""
        ...


class EventStreams:
    """All streams of server-sent events of this process."""

    def __init__(self, desk: Desk, flusher: Flusher, wheel: HeartbeatWheel, metrics: EdgeMetrics) -> None:
        self._desk = desk
        self._flusher = flusher
        self._wheel = wheel
        self._metrics = metrics

    async def send(
        self,
        request: web.Request,
        surface: str,
        reader: EventReader,
        pausing: Pausing,
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        """Writes until the reader is done. `surface` is the label of the metrics; `pausing` waits while the client reads too
        slowly. Raises ConnectionResetError, or is cancelled, when the client is gone."""
        outbox: Outbox | None = None
        connections = self._metrics.connections.labels(surface)
        connections.inc()
        try:
            response = web.StreamResponse(headers=headers)
            response.content_type = "text/event-stream"
            response.headers["Cache-Control"] = "no-cache"
            # nginx would collect the answer first.
            response.headers["X-Accel-Buffering"] = "no"
            response.headers["x-request-id"] = request_id(request)
            if request.version >= HttpVersion11:
                response.enable_chunked_encoding()
            await response.prepare(request)
            outbox = self._outbox(request, surface, pausing)
            reader.send_to(outbox)
            self._wheel.add(reader)
            # The reader's future outlives this wait: another may read on for the generation.
            await asyncio.wait({reader.done})
            outbox.flush()
            self._wheel.remove(reader)
            if self._desk.draining:
                response.force_close()
            await response.write_eof()
            return response
        finally:
            self._wheel.remove(reader)
            if outbox is not None:
                outbox.close()
            connections.dec()

    def _outbox(self, request: web.Request, surface: str, pausing: Pausing) -> Outbox:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError

        def cut(error: SlowConsumer) -> None:
            _log.warning("slow_consumer", surface=surface, problem=error.message)
            transport.abort()

        kind = ChunkedOutbox if request.version >= HttpVersion11 else Outbox
        return kind(transport, self._flusher, surface, cut, pausing)
