"""One answer as it comes, whatever breaks under it."""

from __future__ import annotations

import abc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from streamway.errors import from_status
from streamway.journal.cursor import START, Cursor
from streamway.v1 import common_pb2


class Stream(abc.ABC):
    """Use it as `async with … as stream`, and inside `async for text in stream`, or `await stream.answer()`.

    Where the connection breaks it goes on from its cursor by itself. The iteration ends with the answer, or raises the
    StreamwayError it ended with. Leaving the `async with` early is leaving: the request's `on_disconnect` says what becomes of
    the generation. Several choices are told apart only by `events`.
    """

    def __init__(self, generation: str, cancel: Callable[[str], Awaitable[None]], cursor: Cursor = START) -> None:
        self.generation = generation
        self.cursor = cursor
        self.accepted: common_pb2.Accepted | None = None
        self.finished: common_pb2.Finished | None = None
        self._pieces: list[tuple[int, str]] = []
        self._cancel = cancel
        self._source: AsyncGenerator[common_pb2.Event, None] | None = None

    @property
    def text(self) -> str:
        """The answer so far, from where this stream began. Shorter than what came where the store lost some of that."""
        return "".join(text for _, text in self._pieces)

    @property
    def trace(self) -> str:
        """The id of its trace; empty before it was accepted."""
        parts = self.accepted.traceparent.split("-") if self.accepted is not None else []
        return parts[1] if len(parts) == 4 else ""

    async def cancel(self) -> None:
        """Stops the generation. The iteration then raises Cancelled."""
        await self._cancel(self.generation)

    async def answer(self) -> str:
        """The whole text, when it is there."""
        async for _ in self:
            pass
        return self.text

    async def events(self) -> AsyncIterator[common_pb2.Event]:
        """Each event once, in order, heartbeats left out; the last is `finished`. Raises the StreamwayError it ended with."""
        if self._source is None:
            raise RuntimeError("use it as: async with client.generate(…) as stream")
        async for event in self._source:
            self._note(event)
            if event.HasField("error"):
                raise from_status(event.error.status)
            if not event.HasField("heartbeat"):
                yield event

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self.events():
            if event.HasField("token") and event.token.text:
                yield event.token.text

    async def __aenter__(self) -> Self:
        self._source = self._read()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._source is not None:
            await self._source.aclose()

    @abc.abstractmethod
    def _read(self) -> AsyncGenerator[common_pb2.Event, None]:
        """The events, over as many calls as it takes. Raises StreamwayError."""

    def _note(self, event: common_pb2.Event) -> None:
        if event.position:
            self.cursor = Cursor(event.epoch, event.position)
        if event.HasField("token"):
            if not event.token.choice:
                self._pieces.append((event.position, event.token.text))
        elif event.HasField("accepted"):
            self.accepted = event.accepted
            self.generation = event.accepted.attached_to or self.generation
        elif event.HasField("diverged"):
            kept = Cursor.parse(event.diverged.at)
            self.cursor = kept
            self._pieces = [piece for piece in self._pieces if piece[0] <= kept.position]
        elif event.HasField("finished"):
            self.finished = event.finished
