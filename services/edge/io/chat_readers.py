"""What reads a generation for an OpenAI request."""

from __future__ import annotations

import asyncio
from typing import Any

from services.edge.core import openai_chunks
from services.edge.core.openai_chunks import ChunkEncoder
from services.edge.core.openai_completion import CompletionBuilder
from services.edge.io.outbox import Outbox
from streamway import cachestatus
from streamway.errors import StreamwayError, TakeoverUnsupported, from_status
from streamway.v1 import common_pb2


class AnswerReader:
    """Collects a whole answer. `result` gives the completion object, or raises the generation's error."""

    def __init__(self, builder: CompletionBuilder) -> None:
        self._builder = builder
        self.accepted: common_pb2.Accepted | None = None
        self.result: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event."""
        if kind == "token":
            self._builder.token(event)
        elif kind == "accepted":
            self.accepted = _copy(event.accepted)
        elif kind == "started" and self.accepted is not None:
            cachestatus.begun(self.accepted, event.started)
        elif self.result.done():
            return
        elif kind == "finished":
            if self.accepted is not None:
                cachestatus.spoken(self.accepted)
            self.result.set_result(self._builder.result(event))
        elif kind == "error":
            self.result.set_exception(from_status(event.error.status))
        elif kind == "diverged":
            self.result.set_exception(_taken_back())


class StreamReader:
    """Writes a generation as server-sent events.

    Until `send_to` nothing is written: what has come is kept, which is little, since an engine that speaks ends that time.
    """

    def __init__(self, encoder: ChunkEncoder, request_id: str) -> None:
        loop = asyncio.get_running_loop()
        self._encoder = encoder
        self._request_id = request_id
        self._outbox: Outbox | None = None
        self._held: list[bytes] = []
        self._failed: StreamwayError | None = None
        self.accepted: common_pb2.Accepted | None = None
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._spoken: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    async def begun(self, hold_s: float, most_s: float) -> None:
        """Returns when the engine has said something, or `hold_s` after the mesh took the request, or `most_s` after it was
        asked: then the client needs a sign of life more than a status. Raises an error that came first."""
        await asyncio.wait({self._accepted}, timeout=most_s)
        if self.accepted is not None:
            await asyncio.wait({self._spoken}, timeout=min(hold_s, most_s))
        if self._failed is not None:
            raise self._failed
        if self.accepted is not None and self._spoken.done():
            cachestatus.spoken(self.accepted)

    def send_to(self, outbox: Outbox) -> None:
        """From now on events are written, first those that were kept."""
        self._outbox = outbox
        for data in self._held:
            outbox.put(data)
        self._held.clear()
        if self._failed is not None:
            outbox.put(openai_chunks.error_event(self._failed, self._request_id))

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. Per-token path."""
        if kind == "token":
            self._put(self._encoder.token(event))
        elif kind == "accepted":
            self.accepted = _copy(event.accepted)
            settle(self._accepted)
        elif kind == "started" and self.accepted is not None:
            cachestatus.begun(self.accepted, event.started)
        elif kind == "finished":
            self._put(self._encoder.finished(event))
            self._end()
        elif kind == "error":
            self._fail(from_status(event.error.status))
        elif kind == "diverged" and not self.done.done():
            self._fail(_taken_back())

    def beat(self) -> None:
        """A comment, which clients skip and which keeps proxies from cutting the stream."""
        if self._outbox is not None and not self.done.done():
            self._outbox.put(openai_chunks.PING)

    def _fail(self, error: StreamwayError) -> None:
        self._failed = error
        if self._outbox is not None:
            self._outbox.put(openai_chunks.error_event(error, self._request_id))
        self._end()

    def _put(self, data: bytes) -> None:
        if self._outbox is not None:
            self._outbox.put(data)
        else:
            self._held.append(data)
            settle(self._spoken)

    def _end(self) -> None:
        for future in (self._accepted, self._spoken, self.done):
            settle(future)


def settle(future: asyncio.Future[None]) -> None:
    """Sets a future that may have been set before."""
    if not future.done():
        future.set_result(None)


def _taken_back() -> StreamwayError:
    """A completion has no way to take back what was shown."""
    return TakeoverUnsupported("", "the store lost a part of it that was shown already")


def _copy(accepted: common_pb2.Accepted) -> common_pb2.Accepted:
    """A copy that does not keep the batch it came in."""
    copy = common_pb2.Accepted()
    copy.CopyFrom(accepted)
    return copy
