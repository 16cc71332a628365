"""The public port: aiohttp's server on a socket of our own making, and the requests that it works on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp import web

from services.edge.io.http_errors import Handler
from services.edge.settings import EdgeSettings
from streamway.runtime.address import host_port
from streamway.runtime.process import StartError

# How long handlers may take to end when everything they wait for has ended.
_CLOSE_S = 3.0


class Listener:
    """Serves `routes`. `middlewares` run outermost first."""

    def __init__(
        self, settings: EdgeSettings, routes: list[web.RouteDef], middlewares: list[Any], body_limit: int
    ) -> None:
        self._settings = settings
        self._busy: set[asyncio.Transport] = set()
        app = web.Application(middlewares=[self._tracking(), *middlewares], client_max_size=body_limit)
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # A client that leaves ends its handler, and with it the generation.
            handler_cancellation=True,
            keepalive_timeout=settings.keepalive_s,
            shutdown_timeout=_CLOSE_S,
        )
        self._site: web.SockSite | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return self._address

    async def start(self) -> None:
        """Listens. Raises StartError when the address is taken or not this machine's."""
        await self._runner.setup()
        listening = self._socket()
        self._site = web.SockSite(self._runner, listening, backlog=self._settings.backlog)
        await self._site.start()
        self._address = host_port(self._settings.host, listening.getsockname()[1])

    async def stop_listening(self) -> None:
        """Takes no more connections; those that are open go on."""
        if self._site is not None:
            await self._site.stop()
            self._site = None

    def close_idle(self) -> None:
        """Closes the connections that wait for their next request."""
        server = self._runner.server
        for connection in server.connections if server is not None else ():
            if connection.transport not in self._busy:
                connection.close()

    async def close(self) -> None:
        """Closes every connection; handlers that do not end are cancelled."""
        self._site = None
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
            if settings.socket_send_bytes:
                # Accepted sockets inherit it.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_bytes)
            listening.setblocking(False)
            listening.bind(address)
        except OSError as problem:
            listening.close()
            raise StartError(
                f"cannot listen on {where} ({problem.strerror}); stop what listens there or set STREAMWAY_EDGE_PORT"
            ) from None
        return listening

    def _tracking(self) -> Any:
        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            transport = request.transport
            if transport is None:
                raise ConnectionResetError
            self._busy.add(transport)
            try:
                response = await handler(request)
                if self._site is None and not response.prepared:
                    response.force_close()
                return response
            finally:
                self._busy.discard(transport)

        return track
