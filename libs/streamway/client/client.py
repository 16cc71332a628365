"""A router as a Python program sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, Final, Self

import grpc.aio

from streamway.client.asking import Message, request_of
from streamway.client.many import Many
from streamway.client.stream import Stream
from streamway.errors import RouterUnavailable, StreamwayError, from_rpc_error
from streamway.journal.cursor import START, Cursor
from streamway.rpc import SILENT, own_call
from streamway.rpc.options import client_options
from streamway.runtime.pauses import Pauses
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_MOST_MESSAGE_BYTES: Final = 32 * 1024 * 1024


class Client:
    """`async with Client("127.0.0.1:7001") as client`. One channel, any number of streams.

    `api_key`: where the mesh wants one. `patience_s`: how long a call waits for a router, and a stream whose connection broke for
    a way to go on.
    `credentials`: for a router behind TLS.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:7001",
        *,
        api_key: str = "",
        patience_s: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        max_message_bytes: int = _MOST_MESSAGE_BYTES,
    ) -> None:
        self.address = address
        self.patience_s = patience_s
        options = client_options(max_message_bytes)
        self._channel = (
            grpc.aio.insecure_channel(address, options=options)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=options)
        )
        self._metadata = grpc.aio.Metadata(*((("authorization", f"Bearer {api_key}"),) if api_key else ()))
        self._patiently = {"metadata": self._metadata, "wait_for_ready": True, "timeout": patience_s}
        self._stub: Any = router_pb2_grpc.RouterServiceStub(self._channel)

    async def models(self) -> list[str]:
        """The models that may be asked for. Raises StreamwayError."""
        try:
            listed = await self._stub.ListModels(router_pb2.ListModelsRequest(), **self._patiently)
        except grpc.aio.AioRpcError as problem:
            raise refusal(problem) from None
        return [found.name for found in listed.models]

    def generate(self, prompt: str | Sequence[Message], *, model: str, **fields: Any) -> Stream:
        """Asks a question. `fields`: `max_tokens`, `temperature`, `seed`, `stop`, and those of `GenerationRequest`, as `session`,
        `priority`, `deadline_unix_ms`, `cache`, `on_disconnect`, `durability`, `idempotency_key`, `traceparent`."""
        return OneCall(self, request_of(prompt, model=model, **fields))

    def resume(self, generation: str, after: str = "") -> Stream:
        """Goes on with an answer after a cursor, which `str(stream.cursor)` has told; from its beginning without one."""
        return OneCall(self, None, generation, Cursor.parse(after) if after else START)

    async def cancel(self, generation: str) -> None:
        """Stops a generation, wherever it runs and whoever reads it. Raises StreamwayError."""
        try:
            await self._stub.Cancel(router_pb2.CancelRequest(generation=generation), **self._patiently)
        except grpc.aio.AioRpcError as problem:
            raise refusal(problem) from None

    def many(self) -> Many:
        """Many streams on one call; see `Many`."""
        return Many(lambda: self._stub.Connect(metadata=self._metadata), self.cancel, self.patience_s)

    def call(self, request: common_pb2.GenerationRequest | None, generation: str, cursor: Cursor) -> Any:
        """A new call: of the request, or where that is None, of what goes on after the cursor."""
        if request is not None:
            return self._stub.Generate(router_pb2.GenerateRequest(request=request), metadata=self._metadata)
        asked = router_pb2.ResumeRequest(generation=generation, cursor=str(cursor))
        return self._stub.Resume(asked, metadata=self._metadata)

    async def close(self) -> None:
        """Closes the channel, and what is open on it."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class OneCall(Stream):
    """A stream with a call of its own; after a break with the next one."""

    def __init__(
        self,
        client: Client,
        request: common_pb2.GenerationRequest | None,
        generation: str = "",
        cursor: Cursor = START,
    ) -> None:
        super().__init__(request.generation if request is not None else generation, client.cancel, cursor)
        self._client = client
        self._request = request

    async def _read(self) -> AsyncGenerator[common_pb2.Event, None]:
        loop, pauses = asyncio.get_running_loop(), Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        heard = loop.time()
        while True:
            try:
                async with own_call(self._client.call(self._request, self.generation, self.cursor)) as call:
                    async for response in call:
                        heard = loop.time()
                        pauses.went_well()
                        for event in response.events:
                            if event.HasField("accepted"):
                                # From now on it is gone on with; until then the same id is asked for again.
                                self._request = None
                            yield event
                            if event.WhichOneof("event") in ("finished", "error"):
                                return
                broken: StreamwayError = RouterUnavailable()
            except grpc.aio.AioRpcError as problem:
                broken = refusal(problem)
                if problem.code() not in SILENT or not isinstance(broken, RouterUnavailable):
                    raise broken from None
            if loop.time() - heard > self._client.patience_s:
                raise broken
            await pauses.wait()


def refusal(problem: grpc.aio.AioRpcError) -> StreamwayError:
    """The router's own words, or that there is none."""
    if problem.code() in SILENT and not problem.trailing_metadata():
        return RouterUnavailable()
    return from_rpc_error(problem)
