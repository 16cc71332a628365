"""The network between a client and the mesh, in a test's hands: a TCP proxy that cuts, swallows, refuses and delays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

Weather = Literal["fair", "refusing", "blackhole"]


class Proxy:
    """Passes bytes on to `target` ("http://host:port").

    `weather`: "fair" passes on; "refusing" closes every new connection at once; "blackhole" takes bytes and connections, and
    passes nothing. `no_upgrades` answers each WebSocket handshake with 400; `delay_s` holds every piece back, each way; from
    the first answer on that has `deaf_to` in it nothing of that connection reaches the client.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._fair = asyncio.Event()
        self._fair.set()
        self._weather: Weather = "fair"
        self.no_upgrades = False
        self.delay_s = 0.0
        self.deaf_to = b""
        self._deafened = asyncio.Event()
        self.upgrades = 0
        self.url = ""

    @property
    def weather(self) -> Weather:
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        if weather == "blackhole":
            self._fair.clear()
        else:
            self._fair.set()

    def cut(self) -> None:
        """Drops every connection at once, as a network that is unplugged."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def deafened(self) -> None:
        """Waits until an answer was kept back because of `deaf_to`."""
        await self._deafened.wait()

    async def start(self) -> None:
        """Listens on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Ends everything."""
        self.weather = "refusing"
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._weather == "refusing":
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            await self._fair.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(far_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, far_writer, writer))
                group.create_task(self._pass(far_reader, writer, None))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, far_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer_on: asyncio.StreamWriter | None
    ) -> None:
        deaf = False
        while data := await reader.read(65536):
            await self._fair.wait()
            if answer_on is None and self.deaf_to and self.deaf_to in data:
                deaf = True
                self._deafened.set()
            if deaf:
                continue
            if answer_on is not None and b"\r\nUpgrade: websocket\r\n" in data:
                self.upgrades += 1
                if self.no_upgrades:
                    answer_on.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    await answer_on.drain()
                    break
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(data)
            await writer.drain()
        # One side has ended: so does the other.
        raise ConnectionAbortedError


@asynccontextmanager
async def proxy_to(target: str) -> AsyncIterator[Proxy]:
    """A proxy that is closed with the test."""
    proxy = Proxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        with contextlib.suppress(OSError):
            await proxy.close()
