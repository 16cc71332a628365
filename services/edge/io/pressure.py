"""Measures how hard pressed this process is, and does what `core/pressure.py` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from services.edge.core.connection_life import Why
from services.edge.core.pressure import Idle, Pressure, PressureRules
from services.edge.io.connection import Connection
from services.edge.io.desk import Desk
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.websocket import WebSocketSurface
from streamway.attach import AttachPool
from streamway.attach.client import AttachClient
from streamway.errors import EdgeOverloaded, GoingAway
from streamway.memory import Memory, read_memory

_log = structlog.get_logger("edge")

_LOOK_S: Final = 1.0
_PARTS: Final = ("requests", "latency", "memory")


class PressureWatch:
    """Counts requests each second; each `sample_s` looks at first tokens and memory, and at who gives way."""

    def __init__(
        self,
        rules: PressureRules,
        desk: Desk,
        websockets: WebSocketSurface,
        workers: AttachPool,
        metrics: EdgeMetrics,
        sample_s: float,
        read: Callable[[], Memory] = read_memory,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pressure = Pressure(rules, self._loop.time())
        self._desk = desk
        self._websockets = websockets
        self._workers = workers
        self._metrics = metrics
        self._sample_s = sample_s
        self._read = read
        metrics.bulk_waiting.set_function(lambda: desk.bulk_waiting)
        self._tell()

    async def run(self) -> None:
        """Looks again and again until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._count(), name="count")
            group.create_task(self._sample(), name="sample")

    async def _count(self) -> None:
        desk, at, admitted = self._desk, self._loop.time(), self._desk.admitted
        while True:
            await asyncio.sleep(_LOOK_S)
            now, count = self._loop.time(), desk.admitted
            if self._pressure.requests((count - admitted) / (now - at), now):
                crowded = self._pressure.crowded
                _log.warning("pressure_requests", over=crowded, per_s=round((count - admitted) / (now - at)))
                self._websockets.refusing = EdgeOverloaded(socket=True) if crowded else None
                desk.hold_bulk(crowded)
            at, admitted = now, count
            self._tell()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(self._sample_s)
            p99_ms, memory, now = self._desk.first_tokens.take_p99_ms(), self._read(), self._loop.time()
            if self._pressure.sample(p99_ms, memory.share, now):
                _log.warning("pressure_latency", over=self._pressure.slow, p99_ms=round(p99_ms))
            self._tell()
            if self._pressure.evicts:
                await self._make_room()

    async def _make_room(self) -> None:
        """Idle connections give way: those to workers are closed, clients are told to come back."""
        now = self._loop.time()
        upstream = [Idle(client, client.uses, now - client.idle_s) for client in self._workers.idle()]
        idle: list[Idle[AttachClient | Connection]] = [*upstream, *self._websockets.idle()]
        size = len(self._workers) + len(self._websockets)
        for connection in self._pressure.giving_way(idle, size):
            if isinstance(connection, Connection):
                connection.drain(Why.PRESSURE, GoingAway("edge", "it was idle, and this edge is short of room"))
            else:
                self._metrics.evicted_upstream += 1
                await self._workers.drop(connection)

    def _tell(self) -> None:
        metrics, pressure = self._metrics, self._pressure
        metrics.pressure_level.labels("requests").set(pressure.crowded)
        metrics.pressure_level.labels("latency").set(pressure.slow)
        metrics.pressure_score.set(pressure.score)
        for name, part in zip(_PARTS, pressure.parts, strict=True):
            metrics.pressure_part.labels(name).set(part)
