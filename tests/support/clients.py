"""Clients that know only the wire: HTTP streams, one of them raw, that can be cut; a WebSocket by the `websockets` package."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import aiohttp
import websockets
from websockets.asyncio.client import ClientConnection


async def connect(address: str, receive_bytes: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A TCP connection to "host:port"; `receive_bytes` is what the kernel may hold for a client that does not read."""
    host, _, port = address.partition(":")
    raw = socket.socket()
    raw.setblocking(False)
    if receive_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    await asyncio.get_running_loop().sock_connect(raw, (socket.gethostbyname(host), int(port)))
    return await asyncio.open_connection(sock=raw, limit=64 * 1024 * 1024)


class RawRequest:
    """One HTTP/1.1 request on a socket of its own, so that a test can cut or half-close it.

    Every one is listed in `made`, and a fixture closes what a test left open.
    """

    made: ClassVar[list[RawRequest]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        RawRequest.made.append(self)
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def post(
        cls,
        url: str,
        body: dict[str, Any] | bytes,
        headers: dict[str, str] | None = None,
        receive_bytes: int = 0,
    ) -> Self:
        """Sends a JSON request."""
        parts = urlsplit(url)
        reader, writer = await connect(parts.netloc, receive_bytes)
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = {
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
            **(headers or {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"POST {parts.path} HTTP/1.1\r\n{lines}\r\n".encode() + payload)
        return cls(reader, writer)

    @classmethod
    async def get(cls, url: str, headers: dict[str, str] | None = None, receive_bytes: int = 0) -> Self:
        """Sends a request without a body."""
        parts = urlsplit(url)
        reader, writer = await connect(parts.netloc, receive_bytes)
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": parts.netloc, **(headers or {})}.items())
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        writer.write(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
        return cls(reader, writer)

    async def head(self) -> int:
        """Reads the response's head; returns the status."""
        status_line = await self.reader.readline()
        self.status = int(status_line.split()[1])
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            self.headers[name.strip().lower()] = value.strip()
        return self.status

    async def body(self) -> bytes:
        """The whole body by its length or its chunks."""
        if "content-length" in self.headers:
            return await self.reader.readexactly(int(self.headers["content-length"]))
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of a chunked body."""
        while size := int((await self.reader.readline()).split(b";")[0], 16):
            yield await self.reader.readexactly(size)
            await self.reader.readline()

    async def events(self) -> AsyncIterator[str]:
        """The `data` of each server-sent event; comments are left out."""
        block = b""
        async for chunk in self.chunks():
            block += chunk
            while b"\n\n" in block:
                event, block = block.split(b"\n\n", 1)
                for line in event.split(b"\n"):
                    if line.startswith(b"data: "):
                        yield line[6:].decode()

    def cut(self) -> None:
        """Drops the TCP connection at once."""
        self.writer.transport.abort()


async def sse(where: str, **headers: str) -> tuple[list[dict[str, Any]], list[str]]:
    """All events of a stream to its end, and their ids."""
    found, ids = [], []
    headers = {"Accept": "text/event-stream", **headers}
    async with aiohttp.ClientSession() as session, session.get(where, headers=headers) as response:
        assert response.status == 200, await response.text()
        for block in (await response.text()).split("\n\n"):
            for line in block.split("\n"):
                if line.startswith("data: "):
                    found.append(json.loads(line[6:]))
                elif line.startswith("id: "):
                    ids.append(line[4:])
    return found, ids


def chat_body(prompt: str, **fields: Any) -> dict[str, Any]:
    """A chat completion request for the simulated model."""
    return {"model": "simulated", "messages": [{"role": "user", "content": prompt}], **fields}


class Frames:
    """The JSON subprotocol on a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))

    async def receive(self, within_s: float = 20.0) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await asyncio.wait_for(self.socket.recv(), within_s))
        return frame

    async def open(self, id_: str, prompt: str, **fields: Any) -> None:
        """Opens a generation of the simulated model unless `model` says otherwise."""
        fields = {"model": "simulated", "messages": [{"role": "user", "content": prompt}], **fields}
        await self.send(type="open", id=id_, **fields)

    async def until(self, kind: str, id_: str | None = None, within_s: float = 30.0) -> list[dict[str, Any]]:
        """Every frame up to the first of `kind` (for generation `id_`), heartbeats left out."""
        seen: list[dict[str, Any]] = []
        async with asyncio.timeout(within_s):
            while True:
                frame = await self.receive(within_s)
                if frame["type"] == "heartbeat":
                    continue
                seen.append(frame)
                if frame["type"] == kind and (id_ is None or frame.get("id") == id_):
                    return seen


@asynccontextmanager
async def frames(url: str, **options: Any) -> AsyncIterator[Frames]:
    """A WebSocket on which `hello` has been read."""
    async with websockets.connect(
        url, subprotocols=[websockets.Subprotocol("streamway.v1.json")], max_size=None, **options
    ) as socket:
        client = Frames(socket)
        hello = await client.receive()
        assert hello["type"] == "hello", hello
        yield client


def text_of(seen: list[dict[str, Any]], id_: str | None = None, choice: int = 0) -> str:
    """The text of one choice in frames as they came."""
    return "".join(
        frame["text"]
        for frame in seen
        if frame["type"] == "token" and (id_ is None or frame["id"] == id_) and frame.get("choice", 0) == choice
    )


def assert_positions_tile(seen: list[dict[str, Any]], id_: str | None = None) -> None:
    """Positions are 1, 2, 3 … without gap or repeat, merged frames counted by their range."""
    expected = 1
    for frame in seen:
        if "position" not in frame or (id_ is not None and frame.get("id") != id_):
            continue
        first = frame.get("first_position", frame["position"])
        assert first == expected, f"position {first} came where {expected} was due: {frame}"
        expected = frame["position"] + 1
