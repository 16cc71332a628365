"""Many streams on one gRPC call: what a program with much to do opens, instead of a call for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

import grpc.aio

from streamway.client.asking import Message, request_of
from streamway.client.stream import Stream
from streamway.errors import RouterUnavailable, StreamwayError, from_rpc_error, to_status
from streamway.journal.cursor import START, Cursor
from streamway.rpc import SILENT, own_call
from streamway.runtime.pauses import Pauses
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, router_pb2
from streamway.v1.router_pb2 import ConnectCommand

# Events of one stream that wait for whoever reads it. When so many do, the call is not read on: one that is opened must be read.
WAITING: Final = 1000
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_TERMINAL: Final = ("finished", "error")


class Many:
    """`async with client.many() as many`, then `async with many.generate(…) as stream` as often as wanted, side by side.

    A call that breaks is opened again, and every stream goes on from its cursor. A stream that nobody reads holds the others up
    when 1,000 events of it wait.
    """

    def __init__(self, connect: Callable[[], Any], cancel: Callable[[str], Awaitable[None]], patience_s: float) -> None:
        self._connect = connect
        self._cancel = cancel
        self._patience_s = patience_s
        self._scope = TaskScope("client-many")
        self._streams: dict[str, OnMany] = {}
        self._commands: list[ConnectCommand] = []
        self._wake = asyncio.Event()

    def generate(self, prompt: str | Sequence[Message], *, model: str, **fields: Any) -> Stream:
        """As `Client.generate`."""
        request = request_of(prompt, model=model, **fields)
        return OnMany(self, request.generation, self._cancel, START, request)

    def resume(self, generation: str, after: str = "") -> Stream:
        """As `Client.resume`."""
        return OnMany(self, generation, self._cancel, Cursor.parse(after) if after else START, None)

    def enter(self, stream: OnMany) -> None:
        """It is to be read."""
        if stream.generation in self._streams:
            raise ValueError(f"{stream.generation} is open on this call already")
        self._streams[stream.generation] = stream
        self._say(stream.command())

    def leave(self, stream: OnMany, *, ended: bool) -> None:
        """It is not read any more. What has not ended is cancelled: on a shared call a reader cannot leave alone."""
        for name in (stream.name, stream.generation):
            self._streams.pop(name, None)
        while not stream.waiting.empty():  # who waits to put an event there must not wait for ever
            stream.waiting.get_nowait()
        if not ended:
            self._scope.spawn(self._cancel_quietly(stream.generation), "cancel")

    async def _cancel_quietly(self, generation: str) -> None:
        with contextlib.suppress(StreamwayError):
            await self._cancel(generation)

    async def __aenter__(self) -> Self:
        self._scope.spawn(self._run(), "call")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._scope.close()

    def _say(self, command: ConnectCommand) -> None:
        self._commands.append(command)
        self._wake.set()

    async def _run(self) -> None:
        loop, pauses = asyncio.get_running_loop(), Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        heard = loop.time()
        while True:
            problem: StreamwayError = RouterUnavailable()
            try:
                async with own_call(self._connect()) as call:
                    self._commands = [stream.command() for stream in set(self._streams.values())]
                    self._wake.set()
                    writer = self._scope.spawn(self._write(call), "write")
                    try:
                        async for response in call:
                            heard = loop.time()
                            pauses.went_well()
                            await self._deliver(response.events)
                    finally:
                        writer.cancel()
            except grpc.aio.AioRpcError as broken:
                if broken.code() not in SILENT:
                    problem, heard = from_rpc_error(broken), float("-inf")
            if loop.time() - heard > self._patience_s:
                await self._fail(problem)
            await pauses.wait()

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._commands:
                batch, self._commands = self._commands[:100], self._commands[100:]
                try:
                    await call.write(router_pb2.ConnectRequest(commands=batch))
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return

    async def _deliver(self, events: Sequence[common_pb2.Event]) -> None:
        for event in events:
            stream = self._streams.get(event.generation)
            if stream is not None:
                if attached := stream.took(event):
                    self._streams[attached] = stream
                await stream.waiting.put(event)

    async def _fail(self, problem: StreamwayError) -> None:
        for stream in set(self._streams.values()):
            await stream.waiting.put(common_pb2.Event(error=common_pb2.Error(status=to_status(problem))))


class OnMany(Stream):
    """A stream on a shared call. `name`: the id it is known by there, which stays."""

    def __init__(
        self,
        many: Many,
        generation: str,
        cancel: Callable[[str], Awaitable[None]],
        cursor: Cursor,
        request: common_pb2.GenerationRequest | None,
    ) -> None:
        super().__init__(generation, cancel, cursor)
        self.name = generation
        self.waiting: asyncio.Queue[common_pb2.Event] = asyncio.Queue(WAITING)
        self._many = many
        self._request = request
        # Of the last event that waits to be read, or was read.
        self._reached = cursor
        self._ended = False

    def command(self) -> ConnectCommand:
        """What opens it on a call, or goes on with it on the next one."""
        if self._request is not None:
            return ConnectCommand(open=router_pb2.Open(request=self._request))
        asked = router_pb2.ResumeRequest(generation=self.name, cursor=str(self._reached))
        return ConnectCommand(read_on=router_pb2.ReadOn(request=asked))

    def took(self, event: common_pb2.Event) -> str:
        """An event of it has come. Gives the name under which the others will come where that is another one."""
        if event.position:
            self._reached = Cursor(event.epoch, event.position)
        if event.HasField("diverged"):
            self._reached = Cursor.parse(event.diverged.at)
        if event.HasField("accepted"):
            self._request = None
            self.name = event.accepted.attached_to or self.name
            return event.accepted.attached_to
        return ""

    async def __aenter__(self) -> Self:
        self._many.enter(self)
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, problem, trace)
        self._many.leave(self, ended=self._ended)

    async def _read(self) -> AsyncGenerator[common_pb2.Event, None]:
        while not self._ended:
            event = await self.waiting.get()
            self._ended = event.WhichOneof("event") in _TERMINAL
            yield event
