"""What contract tests need of engines: a sink that records, and a server that answers whatever a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from services.inference_adapter.interfaces import EngineSink
from streamway.errors import StreamwayError
from streamway.v1 import common_pb2


@dataclass
class Piece:
    """One call of `EngineSink.piece`."""

    choice: int
    text: str
    raw_delta: bytes
    finish_reason: str
    token_ids: tuple[int, ...]


@dataclass
class RecordingSink(EngineSink):
    """An `EngineSink` that keeps what it is told and checks the order that the interface promises."""

    started_count: int = 0
    pieces: list[Piece] = field(default_factory=list)
    usage: common_pb2.Usage | None = None
    error: StreamwayError | None = None
    ended_count: int = 0
    on_piece: Callable[[Piece], None] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    first: asyncio.Event = field(default_factory=asyncio.Event)

    def started(self) -> None:
        assert not self.started_count
        assert not self.over.is_set()
        self.started_count += 1

    def piece(
        self,
        choice: int,
        text: str,
        *,
        raw_delta: bytes = b"",
        finish_reason: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> None:
        assert self.started_count == 1
        assert not self.over.is_set()
        text.encode()  # no half characters
        made = Piece(choice, text, raw_delta, finish_reason, token_ids)
        self.pieces.append(made)
        self.first.set()
        if self.on_piece is not None:
            self.on_piece(made)

    def ended(self, usage: common_pb2.Usage | None) -> None:
        assert not self.over.is_set()
        assert self.started_count == 1
        self.usage = usage
        self.ended_count += 1
        self.over.set()

    def failed(self, error: StreamwayError) -> None:
        assert not self.over.is_set()
        self.error = error
        self.over.set()

    async def wait(self, seconds: float = 60.0) -> RecordingSink:
        """Waits for the end."""
        async with asyncio.timeout(seconds):
            await self.over.wait()
        return self

    def text(self, choice: int = 0) -> str:
        """All text of one choice."""
        return "".join(piece.text for piece in self.pieces if piece.choice == choice)

    def finish_reasons(self) -> dict[int, str]:
        """Finish reason of each choice; fails when one has two, or goes on afterwards."""
        reasons: dict[int, str] = {}
        for piece in self.pieces:
            assert piece.choice not in reasons
            if piece.finish_reason:
                reasons[piece.choice] = piece.finish_reason
        return reasons


# An answer without a byte: the connection is closed instead.
CLOSE: list[bytes] = []


class ScriptedServer:
    """A TCP server that reads a whole HTTP request and answers with the bytes it was given, in these pieces.

    The connection is closed after the last piece when `close` is set. `requests` holds what came, `gone` counts the
    connections that the client closed.
    """

    def __init__(self, *answers: list[bytes], close: bool = True, pause_s: float = 0.0) -> None:
        self._answers = list(answers)
        self._close, self._pause_s = close, pause_s
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone = 0
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")), 0
                )
                self.requests.append(head + await reader.readexactly(length))
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                for piece in answer:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(self._pause_s)
                if self._close or answer is CLOSE:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone += 1
        finally:
            writer.close()


def event_stream(*events: str | bytes, end: str = "data: [DONE]\n\n") -> list[bytes]:
    """A 200 response with these events as its body, ended by closing the connection."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    datas = (event if isinstance(event, bytes) else event.encode() for event in events)
    body = b"".join(b"data: " + data + b"\n\n" for data in datas) + end.encode()
    return [head, body]


def status(code: int, body: str | bytes, content_type: str = "application/json") -> list[bytes]:
    """A response with a length."""
    data = body if isinstance(body, bytes) else body.encode()
    head = f"HTTP/1.1 {code} Said\r\nContent-Type: {content_type}\r\nContent-Length: {len(data)}\r\n\r\n"
    return [head.encode() + data]
