"""The two things asked of an engine: a streamed answer, and a small document."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from services.inference_adapter.backends.openai_http import refusals
from services.inference_adapter.backends.openai_http.chunks import DONE, BadChunk, ChunkReader, EngineSaid, counted
from services.inference_adapter.backends.openai_http.connection import EngineConnection
from services.inference_adapter.backends.openai_http.pool import ConnectionPool
from services.inference_adapter.backends.openai_http.sse import EventTooLarge, SSEParser
from services.inference_adapter.interfaces import EngineSink
from streamway.errors import EngineFailed, StreamwayError

ERROR_BODY_LIMIT_BYTES: Final = 64 * 1024
DOCUMENT_LIMIT_BYTES: Final = 8 * 1024 * 1024
Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


class StreamCall:
    """One streamed answer: an `Exchange` towards the connection, an `EngineCall` towards the adapter.

    `made_tokens` of the answer went into the request: they are counted as completion, and not as prompt.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        sink: EngineSink,
        request: bytes,
        worker: str,
        on_over: Callable[[StreamCall], None],
        made_tokens: int = 0,
    ) -> None:
        self._pool, self._sink, self._request, self._worker = pool, sink, request, worker
        self._on_over = on_over
        self._made_tokens = made_tokens
        self._connection: EngineConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reused = False
        self._over = False
        self._flows = False  # its first words have come
        self._by_clock = False
        self._whole = False  # a good status, and a document where a stream was asked for
        self._status = 0
        self._retry_after = ""
        self._error_body = bytearray()
        self._events = SSEParser()
        self._reader = ChunkReader(sink)

    @property
    def over(self) -> bool:
        """It has ended, or was aborted."""
        return self._over

    def begin(self, spawn: Spawn) -> None:
        """Sends the request, on a connection that is ready or on a new one."""
        connection = self._pool.take()
        if connection is not None:
            self._reused = True
            self._use(connection)
        else:
            self._connecting = spawn(self._connect(), "engine-connect")
        self._spawn = spawn

    async def _connect(self) -> None:
        try:
            connection = await self._pool.connect()
        except TimeoutError:
            self._fail(EngineFailed(self._worker, "no connection to it in time"))
        except OSError as problem:
            self._fail(EngineFailed(self._worker, f"no connection to it: {problem.strerror or type(problem).__name__}"))
        else:
            self._connecting = None
            if self._over:
                connection.abort()
            else:
                self._use(connection)

    def _use(self, connection: EngineConnection) -> None:
        self._connection = connection
        connection.send(self, self._request)

    def abort(self) -> None:
        """Closes the connection: that is how an OpenAI-compatible engine is told to stop."""
        if self._over:
            return
        self._finish()
        self._reader.mute()  # the sink may have called us in the middle of a chunk with more to tell
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()

    # Exchange

    def head(self, status: int, content_type: str, retry_after: str) -> None:
        self._status = status
        self._retry_after = retry_after
        if status != 200:
            return
        if content_type == "application/json":
            # Some say so that they refuse, after a good status.
            self._whole = True
            return
        if content_type != "text/event-stream":
            self._break(f"it answered with {content_type or 'no content type'} instead of an event stream")
            return
        self._sink.started()

    def body(self, data: bytes) -> None:
        if self._status != 200 or self._whole:
            self._refusal(data)
            return
        try:
            data = self._reader.read_together(self._events, data)
            for event in self._events.feed(data) if data else ():
                if self._over:  # ended, or the sink aborted us
                    return
                if event == DONE:
                    self._done()
                else:
                    self._reader.read(event)
            if not (self._over or self._by_clock):
                self._may_wait()
        except EngineSaid as said:
            self._fail(refusals.from_stream(said.body, self._worker))
        except BadChunk as problem:
            self._break(f"its stream is garbage: {problem}")
        except EventTooLarge as problem:
            self._break(str(problem))

    def _refusal(self, data: bytes) -> None:
        room = ERROR_BODY_LIMIT_BYTES - len(self._error_body)
        self._error_body += data[:room]
        if len(data) > room:
            self._refused()

    def _may_wait(self) -> None:
        """From the second piece on: for its first words whoever reads the answer waits."""
        if self._flows and self._connection is not None:
            self._by_clock = self._connection.read_by_clock()
        self._flows = bool(self._reader.open)

    def complete(self) -> None:
        self._connection = None
        if self._over:
            return
        if self._status != 200 or self._whole:
            self._refused()
        else:
            self._done()  # some servers end without [DONE]; what counts is that every choice has its finish reason

    def lost(self, problem: str, *, answered: bool) -> None:
        self._connection = None
        if self._over:
            return
        if self._reused and not answered:
            # The engine closed an idle connection just as it was used: it has not seen the request.
            self._reused = False
            self._connecting = self._spawn(self._connect(), "engine-connect")
            return
        self._fail(EngineFailed(self._worker, problem))

    def _done(self) -> None:
        if self._reader.open or not self._reader.ended:
            self._break("its stream ended in the middle of the answer")
            return
        self._finish()
        if self._connection is not None:
            self._connection.release()
        self._sink.ended(counted(self._reader.usage, self._made_tokens))

    def _refused(self) -> None:
        if self._whole:
            self._fail(refusals.from_whole(bytes(self._error_body), self._worker))
            return
        after_s = refusals.seconds_of(self._retry_after, time.time())
        self._fail(refusals.from_response(self._status, bytes(self._error_body), self._worker, after_s))

    def _break(self, problem: str) -> None:
        self._fail(EngineFailed(self._worker, problem))

    def fail(self, error: StreamwayError) -> None:
        """Ends a call that was never sent."""
        self._fail(error)

    def _fail(self, error: StreamwayError) -> None:
        if self._over:
            return
        self._finish()
        if self._connection is not None:
            self._connection.abort()
        self._sink.failed(error)

    def _finish(self) -> None:
        self._over = True
        self._on_over(self)


class Document:
    """One small response, whole. `result` gives (status, body); it raises EngineFailed."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._status = 0
        self._body = bytearray()
        self.result: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def head(self, status: int, content_type: str, retry_after: str) -> None:
        self._status = status

    def body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > DOCUMENT_LIMIT_BYTES and not self.result.done():
            self.result.set_exception(EngineFailed(self._worker, "it sends more than 8 MiB where a list was asked for"))

    def complete(self) -> None:
        if not self.result.done():
            self.result.set_result((self._status, bytes(self._body)))

    def lost(self, problem: str, *, answered: bool) -> None:
        if not self.result.done():
            self.result.set_exception(EngineFailed(self._worker, problem))
