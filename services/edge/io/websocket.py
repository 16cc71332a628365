"""`GET /v1/stream`: the handshake, and all WebSockets that are open. `connection.py` has what happens on one.

aiohttp shakes hands, reads and unmasks; what is sent goes to the transport as frames built by hand. A connection costs no
task beside aiohttp's own.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from aiohttp import web

from services.edge.core import credentials, ws_frames
from services.edge.core.connection_life import Why
from services.edge.core.pressure import Idle
from services.edge.core.ws_json import JsonDialect
from services.edge.core.ws_proto import ProtoDialect
from services.edge.interfaces import Dialect
from services.edge.io.connection import Connection
from services.edge.io.desk import Desk
from services.edge.io.gate import RESTORE_ID, Caller, Gate
from services.edge.io.heartbeats import HeartbeatWheel
from services.edge.io.lifetime import LAST_WORDS_S, SURFACE
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import Flusher
from services.edge.io.restores import Restores
from services.edge.io.routers import Routers
from services.edge.settings import EdgeSettings
from streamway.affinity import session_key
from streamway.errors import GoingAway, InvalidArgument, StreamwayError
from streamway.telemetry.context import RequestContext

# How long a handshake may wait for the names of the models.
_MODELS_WAIT_S: Final = 0.25
# Connections that are looked at in one turn of the loop.
_TOGETHER: Final = 1024
_DIALECTS: Final[tuple[Dialect, ...]] = (JsonDialect(), ProtoDialect())


class WebSocketSurface:
    """Accepts WebSockets and knows the open ones."""

    def __init__(
        self,
        gate: Gate,
        desk: Desk,
        restores: Restores,
        routers: Routers,
        flusher: Flusher,
        wheel: HeartbeatWheel,
        metrics: EdgeMetrics,
        settings: EdgeSettings,
        max_message_bytes: int,
    ) -> None:
        self.desk = desk
        self.restores = restores
        self.flusher = flusher
        self.wheel = wheel
        self.metrics = metrics
        self.settings = settings
        self.life_rules = settings.life_rules
        self.now = asyncio.get_running_loop().time
        self.max_message_bytes = max_message_bytes
        self.max_frame_bytes = min(settings.max_frame_bytes or max_message_bytes, max_message_bytes)
        self._gate = gate
        self._routers = routers
        self._open: set[Connection] = set()
        self._emptied = asyncio.Event()
        # Why new ones are refused now.
        self.refusing: StreamwayError | None = None

    def __len__(self) -> int:
        return len(self._open)

    def context(self, caller: Caller) -> RequestContext:
        """Of one more generation on a caller's connection."""
        return self._gate.one_more(caller)

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The handler of `GET /v1/stream`."""
        protocols = credentials.offered(request.headers.get("Sec-WebSocket-Protocol", ""))
        caller = self._gate.admit(request, credentials.key_of(protocols))
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise InvalidArgument(
                "Upgrade",
                "this address speaks WebSocket only; for plain HTTP use /v1/chat/completions or /v1/generations",
            )
        credentials.check_subprotocol(protocols, [dialect.name for dialect in _DIALECTS])
        if self.desk.draining:
            raise GoingAway("edge")
        socket = web.WebSocketResponse(
            protocols=[dialect.name for dialect in _DIALECTS],
            autoping=False,
            compress=False,
            max_msg_size=self.max_frame_bytes,
            timeout=LAST_WORDS_S,
        )
        if self.refusing is not None:
            return await self._refuse(request, socket, self.refusing)
        models = await self._routers.model_names(_MODELS_WAIT_S)
        models = [model for model in models if self._gate.allows(caller, model)]
        await socket.prepare(request)
        if request.transport is None:
            return socket
        dialect = next((dialect for dialect in _DIALECTS if dialect.name == socket.ws_protocol), _DIALECTS[0])
        websocket_key = request.headers.get("Sec-WebSocket-Key", "")
        address = caller.address if self.settings.session_by_address else ""
        session = session_key.choose(
            caller.session,
            "",
            address,
            session_key.of_websocket(caller.address, websocket_key),
            claim=caller.identity.session,
        )
        connection = Connection(self, socket, request.transport, dialect, caller, session)
        self._open.add(connection)
        self.wheel.add(connection)
        self.metrics.connections.labels(SURFACE).inc()
        try:
            connection.greet(models)
            await connection.receive(request.headers.get(RESTORE_ID, ""))
        finally:
            self._open.discard(connection)
            if not self._open:
                self._emptied.set()
            self.wheel.remove(connection)
            self.metrics.connections.labels(SURFACE).dec()
            connection.gone()
        return socket

    async def _refuse(
        self, request: web.Request, socket: web.WebSocketResponse, error: StreamwayError
    ) -> web.WebSocketResponse:
        """Shakes hands, since a page cannot see why a handshake failed, and says by its close code why that was all."""
        self.metrics.refused_handshakes += 1
        await socket.prepare(request)
        await socket.close(code=error.row.close, message=ws_frames.close_reason(error.message))
        return socket

    def idle(self) -> list[Idle[Connection]]:
        """Those on which nothing runs."""
        return [
            Idle(connection, connection.life.requests, connection.life.used_at)
            for connection in self._open
            if connection.idle
        ]

    async def run(self) -> None:
        """Takes a sample of every connection each `review_s`, until cancelled."""
        at = self.now()
        while True:
            await asyncio.sleep(self.settings.review_s)
            before, at = at, self.now()
            for number, connection in enumerate(list(self._open), 1):
                if connection.life.grows(connection.held_bytes, at - before):
                    connection.drain(Why.GROWTH, GoingAway("edge", "what is kept for it grows too fast"))
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)

    def go_away(self, error: StreamwayError) -> None:
        """Tells every client that this process stops; those with nothing running are closed."""
        for connection in list(self._open):
            connection.go_away(error)

    async def close_all(self) -> None:
        """Closes every connection, when the grace is over; returns when the clients have answered or had their time."""
        for connection in list(self._open):
            connection.say_goodbye(1001, "this edge is shutting down")
        until = asyncio.get_running_loop().time() + LAST_WORDS_S + 0.5
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._open:
                    self._emptied.clear()
                    await self._emptied.wait()
