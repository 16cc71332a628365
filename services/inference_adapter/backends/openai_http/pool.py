"""Connections to one engine."""

from __future__ import annotations

import asyncio
from typing import Final

from services.inference_adapter.backends.openai_http.address import EngineAddress
from services.inference_adapter.backends.openai_http.connection import EngineConnection

IDLE_LIMIT: Final = 256


class ConnectionPool:
    """Opens connections and, with `keep_alive`, keeps up to 256 for the next request, the last used first."""

    def __init__(self, address: EngineAddress, *, keep_alive: bool, connect_timeout_s: float) -> None:
        self._address, self._keep_alive, self._connect_timeout_s = address, keep_alive, connect_timeout_s
        self._idle: list[EngineConnection] = []
        self._open: set[EngineConnection] = set()

    def take(self) -> EngineConnection | None:
        """A connection that is ready, or None: then `connect` makes one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def connect(self, *, keep: bool = True) -> EngineConnection:
        """A new connection; without `keep` it closes after one exchange and nobody else gets it.

        Raises OSError, TimeoutError among them.
        """
        loop = asyncio.get_running_loop()

        def make() -> EngineConnection:
            return EngineConnection(self._went_idle if keep else EngineConnection.abort, self._went_away)

        async with asyncio.timeout(self._connect_timeout_s):
            if self._address.socket_path:
                _, connection = await loop.create_unix_connection(make, self._address.socket_path)
            else:
                _, connection = await loop.create_connection(make, self._address.host, self._address.port)
        self._open.add(connection)
        return connection

    def close(self) -> None:
        """Closes every connection; running exchanges are told nothing."""
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()

    def _went_idle(self, connection: EngineConnection) -> None:
        if self._keep_alive and len(self._idle) < IDLE_LIMIT:
            self._idle.append(connection)
        else:
            connection.abort()

    def _went_away(self, connection: EngineConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
