"""The JSON subprotocol over WebSockets, `plan.streams` sockets with one generation at a time on each."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from typing import Final, cast
from urllib.parse import urlsplit

from benchmarks.clients.plan import USAGE, Plan, Record, Tally, now, reason_of

_TEXT: Final = re.compile(rb'"text":"((?:[^"\\]|\\.)*)"')


class Frames(asyncio.Protocol):
    """One WebSocket (RFC 6455) as a client: masks what it sends, takes unfragmented text frames. Answers pings."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._buffer = b""
        self._is_open = False

    def open(self) -> None:
        """The server has agreed."""

    def text(self, payload: bytes) -> None:
        """A text frame."""

    def ended(self, error: str) -> None:
        """It is over: "cut", "closed", "http_503" …"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        key = base64.b64encode(os.urandom(16)).decode()
        host = urlsplit(self._plan.target).netloc
        protocols = "streamway.v1.json"
        if self._plan.api_key:
            secret = base64.urlsafe_b64encode(self._plan.api_key.encode()).decode().rstrip("=")
            protocols += f", streamway.auth.{secret}"
        self._transport.write(
            f"GET /v1/stream HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {protocols}\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._is_open:
            head, mark, rest = self._buffer.partition(b"\r\n\r\n")
            if not mark:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self.ended(f"http_{head[9:12].decode(errors='replace')}")
                return
            self._is_open = True
            self._buffer = rest
            self.open()
        view, offset = self._buffer, 0
        while len(view) - offset >= 2:
            opcode, length, start = view[offset] & 15, view[offset + 1] & 127, offset + 2
            if length == 126:
                if len(view) < offset + 4:
                    break
                length, start = int.from_bytes(view[offset + 2 : offset + 4], "big"), offset + 4
            elif length == 127:
                if len(view) < offset + 10:
                    break
                length, start = int.from_bytes(view[offset + 2 : offset + 10], "big"), offset + 10
            if len(view) < start + length:
                break
            self._frame(opcode, view[start : start + length])
            offset = start + length
        self._buffer = view[offset:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended("cut")

    def send(self, opcode: int, payload: bytes) -> None:
        """One frame."""
        self._transport.write(masked(opcode, payload))

    def close(self) -> None:
        """Ends the connection."""
        self._transport.close()

    def _frame(self, opcode: int, payload: bytes) -> None:
        if opcode == 1:
            self.text(payload)
        elif opcode == 8:
            self.ended(f"closed: {int.from_bytes(payload[:2], 'big')} {payload[2:].decode(errors='replace')}")
        elif opcode == 9:
            self.send(10, payload)


class _Socket(Frames):
    """One generation after another."""

    def __init__(self, plan: Plan, stream: int, tally: Tally, done: asyncio.Future[None]) -> None:
        super().__init__(plan)
        self._stream, self._tally, self._done = stream, tally, done
        self._turn = 0
        self._record = Record(now())

    def open(self) -> None:
        self._record = Record(now())
        self._tally.records.append(self._record)
        self.send(1, json.dumps(self._plan.open_frame(f"t{self._turn}", self._stream, self._turn)).encode())

    def text(self, payload: bytes) -> None:
        if b'"type":"token"' in payload:
            self._tally.token(self._record, now(), text_of(payload))
        elif b'"type":"finished"' in payload:
            found = USAGE.search(payload)
            self._tally.tokens += int(found[1]) if found else 0
            self._tally.finished += 1
            self._turn += 1
            if self._turn < self._plan.rounds:
                self.open()
            else:
                self.ended("")
        elif b'"type":"error"' in payload:
            self.ended(reason_of(payload, "error_frame"))

    def ended(self, error: str) -> None:
        if self._done.done():
            return
        if error:
            self._tally.error(error)
        self._done.set_result(None)
        self.close()


def text_of(payload: bytes) -> int:
    """Bytes of text in a token's frame."""
    found = _TEXT.search(payload)
    return len(found[1]) if found else 0


def masked(opcode: int, payload: bytes) -> bytes:
    """A client's frame. A mask of zeros is a valid mask and leaves the payload as it is."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


async def run(plan: Plan, tally: Tally) -> None:
    """Runs the whole plan."""
    url = urlsplit(plan.target)
    host, port = url.hostname or "", url.port or 80
    loop = asyncio.get_running_loop()

    async def one(stream: int) -> None:
        await asyncio.sleep(plan.ramp_s * stream / plan.streams)
        done: asyncio.Future[None] = loop.create_future()
        try:
            await loop.create_connection(
                lambda: _Socket(plan, stream, tally, done), host, port, local_addr=plan.local_address(stream)
            )
        except OSError as problem:
            tally.error(type(problem).__name__)
            return
        await done

    async with asyncio.TaskGroup() as group:
        for stream in range(plan.streams):
            group.create_task(one(stream))
