"""Connections to one engine."""

from __future__ import annotations

import asyncio

from services.inference_adapter.backends.openai_http.address import EngineAddress
from services.inference_adapter.backends.openai_http.connection import EngineConnection
from services.inference_adapter.backends.openai_http.sweep import Sweep


class ConnectionPool:
    """Opens connections and keeps up to `most_idle` for the next request, the last used first.

    One that had no request for `idle_s` seconds is not used again; 0: for as long as the engine keeps it. `sweep` reads answers
    by the clock while the process is busy; None: each is read as it comes.
    """

    def __init__(
        self,
        address: EngineAddress,
        *,
        most_idle: int,
        connect_timeout_s: float,
        idle_s: float = 0.0,
        sweep: Sweep | None = None,
    ) -> None:
        self._sweep = sweep
        self._address, self._connect_timeout_s = address, connect_timeout_s
        self._most_idle, self._idle_s = most_idle, idle_s
        # Each with the loop's time since which it has been idle, the longest first.
        self._idle: dict[EngineConnection, float] = {}
        self._open: set[EngineConnection] = set()

    def take(self) -> EngineConnection | None:
        """A connection that is ready, or None: then `connect` makes one."""
        self._drop_old()
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable:
                return connection
        return None

    async def connect(self, *, keep: bool = True) -> EngineConnection:
        """A new connection; without `keep` it closes after one exchange and nobody else gets it.

        Raises OSError, TimeoutError among them.
        """
        loop = asyncio.get_running_loop()

        def make() -> EngineConnection:
            on_idle = self._went_idle if keep else EngineConnection.abort
            return EngineConnection(on_idle, self._went_away, self._sweep)

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

    def _drop_old(self) -> None:
        """Closes what has been idle for too long: looked at whenever one is taken or given back, without a timer."""
        if not self._idle_s:
            return
        since = asyncio.get_running_loop().time() - self._idle_s
        while self._idle:
            oldest = next(iter(self._idle))
            if self._idle[oldest] > since:
                return
            del self._idle[oldest]
            oldest.abort()

    def _went_idle(self, connection: EngineConnection) -> None:
        self._drop_old()
        if len(self._idle) < self._most_idle:
            self._idle[connection] = asyncio.get_running_loop().time()
        else:
            connection.abort()

    def _went_away(self, connection: EngineConnection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
