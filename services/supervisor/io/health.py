"""Whether a process takes work."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import redis.asyncio
from redis.exceptions import RedisError

# What a probe says of a process that cannot answer yet: nothing worth telling.
NOT_YET: Final = "starting"


class Probe(Protocol):
    """One way to ask."""

    async def waiting_for(self) -> str:
        """Empty when the process takes work, else what it waits for."""
        ...


class HttpProbe:
    """Asks `/readyz` on the operations port of a service."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def waiting_for(self) -> str:
        # One small request a time to a server of ours: a client library would cost more to start than it saves.
        try:
            async with asyncio.timeout(2.0):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(f"GET /readyz HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n\r\n".encode())
                    answer = await reader.read()  # until the end: the server closes
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return NOT_YET
        head, _, body = answer.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1:2]
        if status == [b"200"]:
            return ""
        return body.decode(errors="replace").strip()[:200] or "not ready"


class ValkeyProbe:
    """Pings a Valkey."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def waiting_for(self) -> str:
        client = redis.asyncio.Redis.from_url(self._url, socket_timeout=1.0, socket_connect_timeout=1.0)
        try:
            await client.ping()
        except (RedisError, OSError) as problem:
            return "loading its data" if "loading" in str(problem).lower() else NOT_YET
        finally:
            await client.aclose()
        return ""
