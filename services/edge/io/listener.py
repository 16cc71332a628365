"""The public port: aiohttp's server on a socket of our own making."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web

from services.edge.io.accepting import Acceptor
from services.edge.io.connection_counts import ConnectionCounts
from services.edge.io.http_errors import Handler, error_response
from services.edge.settings import EdgeSettings
from streamway.errors import Internal, Malformed
from streamway.runtime.address import host_port
from streamway.runtime.ids import new_secret_id
from streamway.runtime.process import StartError
from streamway.runtime.tasks import TaskScope

_log = structlog.get_logger("edge")

# How long handlers may take to end when everything they wait for has ended.
_CLOSE_S = 3.0


class EdgeProtocol(web.RequestHandler):
    """One client connection. Differs from aiohttp's in what it says to bytes that are not HTTP, and how loudly it logs them,
    counts its requests, and says when it has ended."""

    __slots__ = ("_left", "requests")

    def __init__(self, *given: Any, left: Callable[[], None], **named: Any) -> None:
        super().__init__(*given, **named)
        self.requests = 0
        self._left = left

    def connection_lost(self, exc: BaseException | None) -> None:
        """The transport's word that it is closed."""
        super().connection_lost(exc)
        self._left()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to what never reached a handler. It closes the connection."""
        id_ = new_secret_id()
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            if isinstance(exc, ConnectionError):
                # The client left before the last byte, as many do once they have read the end mark. Nobody is told.
                _log.debug("client_left", request_id=id_)
            else:
                _log.error("request_failed", request_id=id_, exc_info=exc)
            response = error_response(Internal(id_), id_)
        else:
            # Port scanners and TLS on a plain port: nothing that needs somebody.
            _log.debug("request_unreadable", request_id=id_, problem=type(exc).__name__)
            first_line = (message or "").strip().partition("\n")[0]
            response = error_response(Malformed("the HTTP request", first_line[:200] or "it is not HTTP/1.1"), id_)
        response.headers["x-request-id"] = id_
        response.force_close()
        return response

    def close_if_idle(self) -> None:
        """Closes a connection that waits for its next request."""
        if self._current_request is None:
            self.force_close()


class Listener:
    """Serves `routes`. `middlewares` run outermost first."""

    def __init__(
        self, settings: EdgeSettings, routes: list[web.RouteDef], middlewares: list[Any], body_limit: int
    ) -> None:
        self._settings = settings
        app = web.Application(middlewares=[self._last_words(), *middlewares], client_max_size=body_limit)
        app.add_routes(routes)
        app.on_response_prepare.append(self._count)
        # A client that leaves ends its handler, and with it the generation.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_S)
        self._scope = TaskScope("listener")
        self._acceptor: Acceptor | None = None
        self._draining = False
        self._address = ""

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return self._address

    def __len__(self) -> int:
        """Client connections that are open."""
        server = self._runner.server
        return len(server.connections) if server is not None else 0

    async def start(self) -> None:
        """Listens. Raises StartError when the address is taken or not this machine's."""
        await self._runner.setup()
        server, loop = self._runner.server, asyncio.get_running_loop()
        assert server is not None, "setup has made it"
        settings = self._settings

        def connection() -> EdgeProtocol:
            return EdgeProtocol(
                server, loop=loop, keepalive_timeout=settings.keepalive_s, access_log=None, left=acceptor.left
            )

        listening = self._socket() if settings.listen_fd is None else self._inherited(settings.listen_fd)
        self._address = host_port(settings.host, listening.getsockname()[1])
        listening.listen(settings.backlog)
        counts = None if settings.counts_fd is None else ConnectionCounts(settings.counts_fd, settings.counts_slot)
        acceptor = self._acceptor = Acceptor(listening, connection, self._scope, counts)
        acceptor.start()

    def stop_listening(self) -> None:
        """Takes no more connections; those that are open go on, and say with each response that they will end."""
        self._draining = True
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def close_idle(self) -> None:
        """Closes the connections that wait for their next request."""
        server = self._runner.server
        for connection in server.connections if server is not None else ():
            if isinstance(connection, EdgeProtocol):
                connection.close_if_idle()

    async def close(self) -> None:
        """Closes every connection; handlers that do not end are cancelled."""
        self.stop_listening()
        await self._scope.close()
        await self._runner.cleanup()

    def _socket(self) -> socket.socket:
        settings = self._settings
        where = f"{host_port(settings.host, settings.port)}"
        try:
            family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        except OSError as problem:
            raise StartError(f"{settings.host} is no address ({problem.strerror}); set STREAMWAY_EDGE_HOST") from None
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if settings.reuse_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._prepare(listening)
            listening.bind(address)
        except OSError as problem:
            listening.close()
            raise StartError(
                f"cannot listen on {where} ({problem.strerror}); stop what listens there or set STREAMWAY_EDGE_PORT"
            ) from None
        return listening

    def _inherited(self, descriptor: int) -> socket.socket:
        """The socket that the supervisor listens on. Raises StartError when the descriptor is anything else.

        A socket of our own would take the connections that wait in its queue with it when it is closed.
        """
        try:
            listening = socket.socket(fileno=descriptor)
            accepts = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as problem:
            raise StartError(
                f"descriptor {descriptor} is no socket ({problem.strerror}); unset STREAMWAY_EDGE_LISTEN_FD"
            ) from None
        if not accepts:
            listening.detach()
            raise StartError(f"descriptor {descriptor} does not listen; unset STREAMWAY_EDGE_LISTEN_FD")
        self._prepare(listening)
        return listening

    def _prepare(self, listening: socket.socket) -> None:
        if self._settings.socket_send_bytes:
            # Accepted sockets inherit it.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.socket_send_bytes)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # So is this: a peer that acknowledges nothing, or takes nothing, for so long is gone.
            silent_ms = int(self._settings.silent_s * 1000)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silent_ms)
        listening.setblocking(False)

    def _last_words(self) -> Any:
        @web.middleware
        async def last_words(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await handler(request)
            if self._draining and not response.prepared:
                response.force_close()
            return response

        return last_words

    async def _count(self, request: web.Request, response: web.StreamResponse) -> None:
        """The last response that a connection may carry says so."""
        connection = request.protocol
        if not isinstance(connection, EdgeProtocol) or isinstance(response, web.WebSocketResponse):
            return
        connection.requests += 1
        if 0 < self._settings.connection_requests <= connection.requests:
            response.force_close()
            response.headers["Connection"] = "close"
