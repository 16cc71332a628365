"""Reviews how the memory for streams is shared, by how many there are and how fast they are."""

from __future__ import annotations

import asyncio

from services.edge.core.buffer_share import ShareRules, shares
from services.edge.io.desk import Desk
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import Flusher


class BufferShares:
    """Sets the cap of output buffers and the room for requests each `review_s`."""

    def __init__(
        self,
        rules: ShareRules,
        desk: Desk,
        flusher: Flusher,
        metrics: EdgeMetrics,
        review_s: float,
    ) -> None:
        self._rules = rules
        self._desk = desk
        self._flusher = flusher
        self._room = room = desk.room
        self._metrics = metrics
        self._review_s = review_s
        metrics.request_bytes.set_function(lambda: room.held_bytes)
        self._apply(0.0)

    async def run(self) -> None:
        """Reviews until cancelled."""
        loop = asyncio.get_running_loop()
        at, tokens = loop.time(), self._tokens()
        while True:
            await asyncio.sleep(self._review_s)
            now, made = loop.time(), self._tokens()
            self._apply((made - tokens) / (now - at))
            at, tokens = now, made

    def _tokens(self) -> int:
        return sum(self._metrics.tokens.values())

    def _apply(self, tokens_per_s: float) -> None:
        found = shares(self._rules, len(self._desk), tokens_per_s)
        self._flusher.slow_bytes = found.stream_bytes
        self._room.limit_bytes = found.request_bytes
        self._metrics.stream_buffer.set(found.stream_bytes)
        self._metrics.output_share.set(found.output)
