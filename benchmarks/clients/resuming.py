"""Clients of `benchmarks.resume`: they remember when bytes came, and look at them when the crowd is through.

A client that parses while a thousand answers come in would measure itself. So while `held` is on, a socket only notes the
clock beside what it got; `release` parses it with those times.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from benchmarks.clients.plan import now
from benchmarks.clients.websocket import masked

_decode = msgspec.json.Decoder().decode
_DATA = re.compile(rb"^data: (\{.*\})$", re.MULTILINE)


@dataclass
class Resumed:
    """One generation as its client sees it, before and after the cut. Times in seconds of the monotonic clock."""

    prompt: str
    name: str
    generation: str = ""
    epoch: int = 0
    position: int = 0
    sent: float = 0.0
    first: float = 0.0
    recovered: bool = False
    ended: bool = False
    faults: list[str] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)

    @property
    def cursor(self) -> str:
        """Of the last event that came."""
        return f"{self.epoch}-{self.position}"

    @property
    def text(self) -> str:
        """All that came."""
        return "".join(self._pieces)

    def take(self, frame: dict[str, Any], at: float) -> None:
        """The next JSON frame."""
        kind = frame["type"]
        if kind == "accepted":
            self.generation = frame["generation"]
        elif kind == "resumed":
            self.recovered = frame["recovered"] and frame["after"] == self.cursor
        elif kind in ("error", "diverged"):
            self.faults.append(f"{kind} {frame.get('reason', '')}")
            self.ended = self.ended or kind == "error"
        self.epoch = frame.get("epoch") or self.epoch
        position = frame.get("position")
        if position and kind != "error":
            self._tile(frame.get("first_position") or position, position)
        if kind == "token":
            self.piece(frame["text"], at)
        elif kind == "finished":
            self.ended = True

    def take_event(self, event: Any, at: float) -> None:
        """The next event of gRPC."""
        kind = event.WhichOneof("event")
        if kind == "resumed":
            self.recovered = event.resumed.recovered and event.resumed.after == self.cursor
            return
        if kind in ("error", "diverged"):
            self.faults.append(kind)
        self.ended = self.ended or kind in ("finished", "error")
        if event.position and kind != "error":
            self.epoch = event.epoch
            self._tile(event.first_position or event.position, event.position)
        if kind == "token":
            self.piece(event.token.text, at)

    def piece(self, text: str, at: float) -> None:
        """Some text."""
        self._pieces.append(text)
        if self.sent and not self.first:
            self.first = at

    def _tile(self, first: int, last: int) -> None:
        if first != self.position + 1:
            self.faults.append("repeated" if first <= self.position else "hole")
        self.position = last


class _Holding(asyncio.Protocol):
    """A TCP connection that can keep what it gets for later."""

    def __init__(self) -> None:
        self.held = False
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._chunks: list[tuple[float, bytes]] = []
        self._buffer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.held:
            self._chunks.append((now(), data))
        else:
            self.parse(data, now())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.open.done():
            self.open.set_exception(ConnectionResetError("the edge refused the connection"))

    def release(self) -> None:
        """Parses what was kept, and from now on what comes."""
        self.held = False
        chunks, self._chunks = self._chunks, []
        for at, data in chunks:
            self.parse(data, at)

    def parse(self, data: bytes, at: float) -> None:
        """Takes the next bytes, which came at `at`."""
        raise NotImplementedError


P = TypeVar("P", bound=_Holding)


class Socket(_Holding):
    """The JSON subprotocol for several generations; see `websocket.py` for the bytes."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host
        self.restore_id = ""
        self.streams: dict[str, Resumed] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        key = base64.b64encode(os.urandom(16)).decode()
        self.transport.write(
            f"GET /v1/stream HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: streamway.v1.json\r\n\r\n".encode()
        )

    def send(self, *commands: dict[str, Any]) -> None:
        """Sends frames in one write."""
        self.transport.write(self.frames(*commands))

    @staticmethod
    def frames(*commands: dict[str, Any]) -> bytes:
        """The frames of these commands."""
        return b"".join(masked(1, json.dumps(command).encode()) for command in commands)

    def parse(self, data: bytes, at: float) -> None:
        buffer = self._buffer + data
        offset = 0
        if not self.open.done() and not self.restore_id:
            head, mark, rest = buffer.partition(b"\r\n\r\n")
            if mark and head.startswith(b"HTTP/1.1 101"):
                buffer = rest
                self.restore_id = "-"
            elif mark:
                self.open.set_exception(ConnectionRefusedError(head[:40].decode(errors="replace")))
                return
            else:
                self._buffer = buffer
                return
        while len(buffer) - offset >= 2:
            length, start = buffer[offset + 1] & 127, offset + 2
            wide = {126: 2, 127: 8}.get(length, 0)
            if len(buffer) < start + wide:
                break
            if wide:
                length, start = int.from_bytes(buffer[start : start + wide], "big"), start + wide
            if len(buffer) < start + length:
                break
            self._frame(buffer[offset] & 15, buffer[start : start + length], at)
            offset = start + length
        self._buffer = buffer[offset:]

    def _frame(self, opcode: int, payload: bytes, at: float) -> None:
        if opcode == 9:
            self.transport.write(masked(10, payload))
        elif opcode == 1:
            frame = _decode(payload)
            if frame["type"] == "hello":
                self.restore_id = frame["restore_id"]
                self.open.set_result(None)
            elif stream := self.streams.get(frame.get("id", "")):
                stream.take(frame, at)


class EventStream(_Holding):
    """One generation by `GET /v1/generations/{id}/events` with `Last-Event-ID`."""

    def __init__(self, host: str, stream: Resumed) -> None:
        super().__init__()
        self._host = host
        self._stream = stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.open.set_result(None)

    def request(self) -> bytes:
        """What asks for it."""
        return (
            f"GET /v1/generations/{self._stream.generation}/events HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Accept: text/event-stream\r\nLast-Event-ID: {self._stream.cursor}\r\n\r\n"
        ).encode()

    def parse(self, data: bytes, at: float) -> None:
        whole, mark, self._buffer = (self._buffer + data).rpartition(b"\n\n")
        if mark:
            for body in _DATA.findall(whole.replace(b"\r", b"")):
                self._stream.take(_decode(body), at)


async def connect(url: str, number: int, make: Callable[[str, int], P]) -> list[P]:
    """So many connections that are ready; `make` gets the host and the connection's number."""
    address = urlsplit(url)
    loop = asyncio.get_running_loop()
    made: list[P] = []
    for index in range(number):
        _, protocol = await loop.create_connection(
            lambda i=index: make(address.netloc, i),  # type: ignore[misc] # the lambda's default is the index
            address.hostname or "",
            address.port or 80,
        )
        made.append(protocol)
    async with asyncio.timeout(30):
        for protocol in made:
            await protocol.open
    return made
