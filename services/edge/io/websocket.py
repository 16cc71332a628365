"""`/v1/stream`: many generations side by side on one WebSocket.

aiohttp shakes hands, reads and unmasks; what is sent goes to the transport as frames built by hand. A connection costs no
task beside aiohttp's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import structlog
from aiohttp import WSMsgType, web

from services.edge.core import credentials, session_key, ws_frames, ws_protocol
from services.edge.core.ws_frames import GenerationFrames
from services.edge.core.ws_protocol import SUBPROTOCOL, BadFrame, CancelFrame, OpenFrame
from services.edge.io.desk import Desk, Generation
from services.edge.io.gate import Caller, Gate
from services.edge.io.heartbeats import HeartbeatWheel
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import Flusher, Outbox
from services.edge.io.routers import Routers
from services.edge.settings import EdgeSettings
from streamway.errors import (
    DuplicateId,
    GenerationNotFound,
    GoingAway,
    InvalidArgument,
    Malformed,
    SlowConsumer,
    StreamwayError,
    TooLarge,
    TooManyGenerations,
    from_status,
)
from streamway.runtime.ids import new_generation_id, new_secret_id
from streamway.telemetry.context import begin
from streamway.v1 import common_pb2

_log = structlog.get_logger("edge")

_SURFACE: Final = "websocket"
# How long a client that was told to go may take to read it.
_LAST_WORDS_S: Final = 2.0
# How long a handshake may wait for the names of the models.
_MODELS_WAIT_S: Final = 0.25


class WebSocketSurface:
    """Accepts WebSockets and knows the open ones."""

    def __init__(
        self,
        gate: Gate,
        desk: Desk,
        routers: Routers,
        flusher: Flusher,
        wheel: HeartbeatWheel,
        metrics: EdgeMetrics,
        settings: EdgeSettings,
        max_message_bytes: int,
    ) -> None:
        self.desk = desk
        self.flusher = flusher
        self.wheel = wheel
        self.metrics = metrics
        self.settings = settings
        self.max_message_bytes = max_message_bytes
        self.max_frame_bytes = min(settings.max_frame_bytes or max_message_bytes, max_message_bytes)
        self._gate = gate
        self._routers = routers
        self._open: set[Connection] = set()
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The handler of `GET /v1/stream`."""
        protocols = credentials.offered(request.headers.get("Sec-WebSocket-Protocol", ""))
        caller = self._gate.admit(request, credentials.key_of(protocols))
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise InvalidArgument(
                "Upgrade", "this address speaks WebSocket only; for plain HTTP use /v1/chat/completions"
            )
        credentials.check_subprotocol(protocols)
        if self.desk.draining:
            raise GoingAway("edge")
        socket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            autoping=False,
            compress=False,
            max_msg_size=self.max_frame_bytes,
            timeout=_LAST_WORDS_S,
        )
        models = await self._routers.model_names(_MODELS_WAIT_S)
        await socket.prepare(request)
        if request.transport is None:
            return socket
        websocket_key = request.headers.get("Sec-WebSocket-Key", "")
        address = caller.address if self.settings.session_by_address else ""
        session = session_key.choose(
            caller.session, "", address, session_key.of_websocket(caller.address, websocket_key)
        )
        connection = Connection(self, socket, request.transport, caller, session)
        self._open.add(connection)
        self.wheel.add(connection)
        self.metrics.connections.labels(_SURFACE).inc()
        try:
            connection.greet(models)
            await connection.receive()
        finally:
            self._open.discard(connection)
            if not self._open:
                self._emptied.set()
            self.wheel.remove(connection)
            self.metrics.connections.labels(_SURFACE).dec()
            connection.gone()
        return socket

    def go_away(self, error: StreamwayError) -> None:
        """Tells every client that this process stops; those with nothing running are closed."""
        for connection in list(self._open):
            connection.go_away(error)

    async def close_all(self) -> None:
        """Closes every connection, when the grace is over; returns when the clients have answered or had their time."""
        for connection in list(self._open):
            connection.say_goodbye(1001, "this edge is shutting down")
        until = asyncio.get_running_loop().time() + _LAST_WORDS_S + 0.5
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._open:
                    self._emptied.clear()
                    await self._emptied.wait()


class Connection:
    """One WebSocket with its generations, by the client's ids."""

    __slots__ = (
        "_address",
        "_caller",
        "_closing",
        "_going_away",
        "_live",
        "_seen",
        "_session",
        "_socket",
        "_surface",
        "_transport",
        "outbox",
    )

    def __init__(
        self,
        surface: WebSocketSurface,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport,
        caller: Caller,
        session: str,
    ) -> None:
        self._surface = surface
        self._socket = socket
        self._transport = transport
        self._caller = caller
        self._session = session
        self._live: dict[str, Generation] = {}
        self._seen = 0
        self._closing = False
        self._going_away = False
        self.outbox = Outbox(transport, surface.flusher, _SURFACE, self._too_slow)

    def greet(self, models: list[str]) -> None:
        """The first frame."""
        heartbeat_ms = int(self._surface.settings.heartbeat_s * 1000)
        self.outbox.put(ws_frames.hello(new_secret_id(), self._session, models, heartbeat_ms))

    async def receive(self) -> None:
        """Works through what the client sends until the connection ends."""
        socket = self._socket
        while True:
            message = await socket.receive()
            self._seen = 0
            kind = message.type
            if kind is WSMsgType.TEXT:
                if not self._closing:
                    self._text(message.data)
            elif kind is WSMsgType.PING:
                self.outbox.put(ws_frames.pong_frame(message.data))
            elif kind is WSMsgType.BINARY:
                self._refuse(Malformed("a binary frame", f"{SUBPROTOCOL} has text frames only"))
            elif kind is not WSMsgType.PONG:
                # Closed by the client, by us, or by a frame that breaks the protocol; aiohttp has answered it.
                return

    def beat(self) -> None:
        """A heartbeat for the client and a ping for its protocol; closes a client that has sent nothing for too long."""
        if self._closing:
            return
        self._seen += 1
        if self._seen > self._surface.settings.missed_heartbeats:
            _log.info("client_dead", generations=len(self._live))
            self._closing = True
            self._transport.abort()
            return
        self.outbox.put(ws_frames.HEARTBEAT + ws_frames.PING)

    def go_away(self, error: StreamwayError) -> None:
        """The process stops: says so, and closes when nothing runs."""
        self._going_away = True
        self.outbox.put(ws_frames.going_away(error))
        self._close_if_idle()

    def say_goodbye(self, code: int, reason: str) -> None:
        """Closes with a code. The client has a few seconds to read what is left."""
        if self._closing:
            return
        self._closing = True
        self.outbox.put(ws_frames.close_frame(code, reason))
        self.outbox.flush()
        self.outbox.close()
        self._leave_all()
        # Its own close frame ends the connection. Closing it from here could reset it before ours is read.
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._transport.abort)

    def gone(self) -> None:
        """The connection has ended: nothing of it stays."""
        if self._live and not self._closing:
            self._surface.metrics.abnormal_closes += 1
        self._closing = True
        self.outbox.close()
        self._leave_all()

    def ended(self, id_: str) -> None:
        """A generation has ended; its id is free again."""
        self._live.pop(id_, None)
        if self._going_away:
            self._close_if_idle()

    def _text(self, text: str) -> None:
        try:
            command = ws_protocol.parse(text)
        except BadFrame as bad:
            self._refuse(bad.error, bad.id)
            return
        if isinstance(command, OpenFrame):
            self._open(command)
        elif isinstance(command, CancelFrame):
            generation = self._live.get(command.id)
            if generation is None:
                self._refuse(GenerationNotFound(command.id), command.id)
            else:
                generation.cancel()
        else:
            self.outbox.put(ws_frames.pong(command.t))

    def _open(self, frame: OpenFrame) -> None:
        surface = self._surface
        try:
            if surface.desk.draining:
                raise GoingAway("edge")
            if frame.id in self._live:
                raise DuplicateId(frame.id)
            if len(self._live) >= surface.settings.max_generations:
                raise TooManyGenerations("connection", surface.settings.max_generations)
            request = ws_protocol.to_request(frame, int(time.time() * 1000))
            if request.ByteSize() + 4096 > surface.max_message_bytes:
                raise TooLarge("the request", surface.max_message_bytes - 4096, "STREAMWAY_MAX_MESSAGE_BYTES")
            context = begin(self._caller.context.traceparent, tenant=self._caller.identity.tenant)
            request.generation = new_generation_id()
            request.tenant = self._caller.identity.tenant
            request.session = session_key.of_id(frame.session) if frame.session else self._session
            request.traceparent = context.traceparent
            reader = _Reader(self, frame.id, context.traceparent)
            self._live[frame.id] = surface.desk.open(request, reader, _SURFACE)
        except StreamwayError as refusal:
            self._refuse(refusal, frame.id)

    def _refuse(self, error: StreamwayError, id_: str = "") -> None:
        self.outbox.put(ws_frames.error(error, id_))

    def _too_slow(self, error: SlowConsumer) -> None:
        _log.warning("slow_consumer", surface=_SURFACE, problem=error.message, generations=len(self._live))
        self.say_goodbye(error.row.close, error.message)

    def _close_if_idle(self) -> None:
        if not self._live:
            self.say_goodbye(1001, "this edge is shutting down")

    def _leave_all(self) -> None:
        live, self._live = self._live, {}
        for generation in live.values():
            generation.leave()


class _Reader:
    """Reads one generation for a connection."""

    __slots__ = ("_connection", "_frames", "_id", "_put", "_traceparent")

    def __init__(self, connection: Connection, id_: str, traceparent: str) -> None:
        self._connection = connection
        self._id = id_
        self._traceparent = traceparent
        self._frames = GenerationFrames(id_)
        self._put = connection.outbox.put

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. Per-token path."""
        frames = self._frames
        if kind == "token":
            self._put(frames.token(event))
        elif kind == "accepted":
            self._put(frames.accepted(event, self._traceparent))
        elif kind == "started":
            self._put(frames.started(event))
        elif kind == "taken_over":
            self._put(frames.taken_over(event))
        elif kind == "finished":
            self._put(frames.finished(event))
            self._connection.ended(self._id)
        elif kind == "error":
            error = from_status(event.error.status)
            self._put(frames.error(error, event.error.delivered_until))
            self._connection.ended(self._id)
