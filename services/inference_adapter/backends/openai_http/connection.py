"""One HTTP connection to an engine: bytes in, an exchange told.

Why not aiohttp's client: a chunk of an engine's stream costs 22 µs of CPU through it and 10 µs through a protocol on
httptools, and every token passes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools
import structlog

from services.inference_adapter.backends.openai_http.sweep import Sweep

HEADER_LIMIT_BYTES: Final = 64 * 1024
RELEASE_LIMIT_S: Final = 1.0
# Of one read by the clock, and how many of them before others have their turn.
_READ_BYTES: Final = 64 * 1024
_MOST_READS: Final = 16
_log = structlog.get_logger("adapter")


class Exchange(Protocol):
    """One request and what becomes of it. After `complete` or `lost` nothing more is told."""

    def head(self, status: int, content_type: str, retry_after: str) -> None:
        """Status line and headers have come. `retry_after`: that header as it stands, "" without one."""
        ...

    def body(self, data: bytes) -> None:
        """A piece of the body."""
        ...

    def complete(self) -> None:
        """The response ended as it should."""
        ...

    def lost(self, problem: str, *, answered: bool) -> None:
        """The connection broke or spoke something else than HTTP. `answered`: after the first byte of the response."""
        ...


class EngineConnection(asyncio.Protocol):
    """Carries one exchange at a time. `on_idle` is called when it can carry another, `on_lost` when it is gone."""

    def __init__(
        self,
        on_idle: Callable[[EngineConnection], None],
        on_lost: Callable[[EngineConnection], None],
        sweep: Sweep | None = None,
    ) -> None:
        self._on_idle, self._on_lost = on_idle, on_lost
        self._sweep = sweep
        # The socket's file; the same while it is read by the clock, -1 while the loop reads.
        self._fd = self._swept = -1
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._bodies: list[bytes] = []
        # httptools looks these up once, by name.
        self.on_body = self._bodies.append
        self._busy = False
        self._reset()

    def _reset(self) -> None:
        self._head_bytes = 0
        self._head_done = self._head_told = self._complete = self._framed = self._keep = self._surplus = False
        self._status = 0
        self._content_type = self._retry_after = ""

    @property
    def usable(self) -> bool:
        """Open, and no exchange under way."""
        return self._transport is not None and not self._transport.is_closing() and not self._busy

    def send(self, exchange: Exchange, request: bytes) -> None:
        """Sends a whole request; its exchange is told what comes. Only while `usable`."""
        assert self._transport is not None
        self._busy = True
        self._exchange = exchange
        self._reset()
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    def read_by_clock(self) -> bool:
        """To the end of the exchange what comes is read with that of others, if the process is busy; whether it is. Not again
        once it is."""
        transport = self._transport
        if self._sweep is None or self._fd < 0 or transport is None or transport.is_closing():
            return False
        if not self._sweep.add(self._fd, self):
            return False
        self._swept = self._fd
        transport.pause_reading()
        return True

    def read(self, fd: int) -> None:
        """What has come at a socket that the loop does not read."""
        for _ in range(_MOST_READS):
            try:
                data = os.read(fd, _READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._read_by_loop()  # it finds the same, and ends the connection
                return
            try:
                self.data_received(data)
            except Exception:  # noqa: BLE001 — one exchange's fault must not stop the reading of the others
                _log.exception("engine_answer_unread")
                self._break("its answer could not be taken")
                return
            if len(data) < _READ_BYTES or self._swept != fd:
                return

    def _read_by_nobody(self) -> None:
        """Before the socket is closed."""
        if self._swept >= 0 and self._sweep is not None:
            self._sweep.discard(self._swept, self)
        self._swept = -1

    def _read_by_loop(self) -> None:
        swept = self._swept >= 0
        self._read_by_nobody()
        if swept and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def release(self) -> None:
        """The exchange has heard enough; the rest of the response is dropped, so that the connection can be used again."""
        self._exchange = None
        self._read_by_loop()
        if self._parser is not None:
            asyncio.get_running_loop().call_later(RELEASE_LIMIT_S, self._give_up, self._parser)

    def _give_up(self, parser: object) -> None:
        if self._parser is parser:
            self.abort()  # the response that was released still has not ended

    def abort(self) -> None:
        """Closes at once; the exchange is told nothing. The engine takes it as the cancel of its work."""
        self._exchange = None
        self._close()

    def _close(self) -> None:
        self._read_by_nobody()
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        raw = transport.get_extra_info("socket")
        if raw is None:
            return
        self._fd = raw.fileno()
        if raw.family in {socket.AF_INET, socket.AF_INET6}:
            # A host that vanishes without a word is found after 10 + 3 × 5 s.
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
                    if hasattr(socket, name):
                        raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or not self._busy:
            self.abort()  # bytes that nobody asked for
            return
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._tell()  # what was read before the garbage
            self._break("it does not speak HTTP")
            return
        if not self._head_done and self._head_bytes > HEADER_LIMIT_BYTES:
            self._break(f"its response headers are larger than {HEADER_LIMIT_BYTES} bytes")
            return
        self._tell()
        if self._complete:
            self._end()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._read_by_nobody()
        self._transport = None
        exchange, self._exchange = self._exchange, None
        self._busy = False
        self._on_lost(self)
        if exchange is None:
            return
        if self._head_done and not self._framed and exc is None:
            exchange.complete()  # a body without length or chunks ends with the connection
        else:
            exchange.lost("the connection broke", answered=self._head_bytes > 0)

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"content-type":
            self._content_type = value.decode("latin-1").partition(";")[0].strip().lower()
        elif lower == b"retry-after":
            self._retry_after = value.decode("latin-1").strip()
        elif lower in {b"content-length", b"transfer-encoding"}:
            self._framed = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            return  # 100 Continue and its like come before the response
        self._head_done, self._status = True, status

    def on_message_begin(self) -> None:
        # A second response to one request: nothing after it can be trusted.
        self._surplus = self._head_done

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if not self._head_done:
            return
        self._complete = True
        # Asked here: once the message is over the parser has forgotten it.
        self._keep = self._parser.should_keep_alive() and self._framed

    def _tell(self) -> None:
        """Tells the exchange what one read brought. Not from inside the parser: it would swallow what a sink raises."""
        if self._head_done and not self._head_told:
            self._head_told = True
            if self._exchange is not None:
                self._exchange.head(self._status, self._content_type, self._retry_after)
        bodies = self._bodies
        if not bodies:
            return
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        bodies.clear()
        if self._exchange is not None:
            self._exchange.body(body)

    def _end(self) -> None:
        exchange, self._exchange = self._exchange, None
        keep = self._keep and not self._surplus
        self._parser = None
        self._busy = False
        if keep:
            self._read_by_loop()
        else:
            self._close()
        if exchange is not None:
            exchange.complete()
        if keep:
            self._on_idle(self)

    def _break(self, problem: str) -> None:
        exchange, self._exchange = self._exchange, None
        self._close()
        if exchange is not None:
            exchange.lost(problem, answered=True)
