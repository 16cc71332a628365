"""One `Exchange` stream to one cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc.aio
import structlog

from services.router.core.patience import Patience
from streamway.config.shared import SharedSettings
from streamway.errors import from_rpc_error
from streamway.rpc import SILENT, mesh_metadata, open_channel, own_call
from streamway.runtime.pauses import Pauses
from streamway.runtime.tasks import TaskScope
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2

_log = structlog.get_logger("router")
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_MOST_CALLS: Final = 1000
# Of what is asked in a call of its own: it is rare, and a lookup must not wait behind it.
_ASK_TIMEOUT_S: Final = 2.0
_MOST_CALLS_A_MESSAGE: Final = 100
_MOST_BYTES: Final = 8 * 1024 * 1024

StoreOutcome = Callable[[str], None]


class CacheLink:
    """Lookups and stores by number on one stream, opened again whenever it breaks.

    Nothing waits for it: while no stream is open, or too much is unsent, or it was late too often, a lookup says nothing at
    once and a store is dropped. `stored` is told the outcome of each store.
    """

    def __init__(self, address: str, shared: SharedSettings, scope: TaskScope, stored: StoreOutcome) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._scope = scope
        self._stored = stored
        self._metadata = mesh_metadata(shared)
        self._channel = open_channel(address, shared)
        self._stub: Any = cache_pb2_grpc.CacheServiceStub(self._channel)
        self._patience = Patience()
        self._next_id = 0
        self._lookups: dict[int, asyncio.Future[cache_pb2.LookupResponse | None]] = {}
        self._stores: set[int] = set()
        self._outbox: list[cache_pb2.ExchangeCall] = []
        self._outbox_bytes = 0
        self._wake = asyncio.Event()
        self.connected = False
        self._task = scope.spawn(self._run(), f"cache-{address}")

    async def lookup(
        self,
        request: common_pb2.GenerationRequest,
        level: cache_pb2.LookupLevel.ValueType,
        budget_s: float,
        traceparent: str = "",
        *,
        blamed: bool,
    ) -> cache_pb2.LookupResponse | None:
        """The answer within `budget_s`, or None. `traceparent` is the question's.

        `blamed`: being late says that the cache is slow, not the question hard.
        """
        if not self._patience.allows(self._loop.time()):
            return None
        call = cache_pb2.ExchangeCall(lookup=cache_pb2.LookupRequest(request=request, level=level))
        call.lookup.request.traceparent = traceparent
        if not self._send(call):
            return None
        future: asyncio.Future[cache_pb2.LookupResponse | None] = self._loop.create_future()
        self._lookups[call.id] = future
        self._loop.call_later(budget_s, self._late, call.id, self._loop.time() + budget_s, budget_s / 4, blamed)
        try:
            return await future
        finally:
            self._lookups.pop(call.id, None)

    def store(self, request: common_pb2.GenerationRequest, events: Sequence[common_pb2.Event]) -> None:
        """Sends an answer, or drops it."""
        call = cache_pb2.ExchangeCall(store=cache_pb2.StoreRequest(request=request, events=events))
        if len(self._stores) < _MOST_CALLS and self._send(call):
            self._stores.add(call.id)
        else:
            self._stored("dropped")

    async def stats(self, tenant: str) -> cache_pb2.StatsResponse | None:
        """What the cache says of a tenant, with details; None when it says nothing in time."""
        asked = cache_pb2.StatsRequest(tenant=tenant, details=True)
        try:
            found: cache_pb2.StatsResponse = await self._stub.Stats(
                asked, metadata=self._metadata, timeout=_ASK_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as problem:
            _log.info("cache_stats_not_told", address=self.address, code=problem.code().name)
            return None
        return found

    async def feedback(self, tenant: str, entry: str, good: bool) -> bool | None:
        """Whether the tenant has that entry; None without an answer. Raises what the cache refuses with."""
        request = cache_pb2.FeedbackRequest(tenant=tenant, entry=entry, good=good)
        try:
            answer: cache_pb2.FeedbackResponse = await self._stub.Feedback(
                request, metadata=self._metadata, timeout=_ASK_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as problem:
            if problem.code() in SILENT:
                return None
            raise from_rpc_error(problem) from None
        return answer.known

    async def close(self) -> None:
        """Ends the stream; open lookups get nothing."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._channel.close()

    def _send(self, call: cache_pb2.ExchangeCall) -> bool:
        size = call.ByteSize()
        if not self.connected or len(self._outbox) >= _MOST_CALLS or self._outbox_bytes + size > _MOST_BYTES:
            return False
        self._next_id += 1
        call.id = self._next_id
        self._outbox.append(call)
        self._outbox_bytes += size
        self._wake.set()
        return True

    def _late(self, id_: int, due: float, more_s: float, blamed: bool) -> None:
        future = self._lookups.get(id_)
        if future is None or future.done():
            return
        if more_s and self._loop.time() - due > more_s:
            # It is this loop that is late: the answer may be here already, unread.
            self._loop.call_later(more_s, self._late, id_, due, 0.0, blamed)
            return
        if more_s and blamed:
            self._patience.late(self._loop.time())
        future.set_result(None)

    async def _run(self) -> None:
        pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            opened = self._loop.time()
            try:
                await self._channel.channel_ready()
                async with own_call(self._stub.Exchange(metadata=self._metadata)) as call:
                    self.connected = True
                    writer = self._scope.spawn(self._write(call), "cache-write")
                    try:
                        await self._read(call)
                    finally:
                        writer.cancel()
            except grpc.aio.AioRpcError as broken:
                _log.info("cache_stream_broken", address=self.address, code=broken.code().name)
            except asyncio.CancelledError:
                # grpc.aio raises this also when the peer ends the call with CANCELLED, as a stopping server does.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            finally:
                self._reset()
            if self._loop.time() - opened > _LONGEST_PAUSE_S:
                pauses.went_well()
            await pauses.wait()

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                batch, self._outbox = self._outbox[:_MOST_CALLS_A_MESSAGE], self._outbox[_MOST_CALLS_A_MESSAGE:]
                self._outbox_bytes -= sum(call.ByteSize() for call in batch)
                try:
                    await call.write(cache_pb2.ExchangeRequest(calls=batch))
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return

    async def _read(self, call: Any) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            for reply in response.replies:
                kind = reply.WhichOneof("reply")
                future = self._lookups.pop(reply.id, None)
                if future is not None:
                    self._patience.answered()
                    if not future.done():
                        future.set_result(reply.lookup if kind == "lookup" else None)
                elif reply.id in self._stores:
                    self._stores.discard(reply.id)
                    self._stored(_outcome(reply, kind))

    def _reset(self) -> None:
        self.connected = False
        for future in self._lookups.values():
            if not future.done():
                future.set_result(None)
        self._lookups.clear()
        for _ in self._stores:
            self._stored("dropped")
        self._stores.clear()
        self._outbox, self._outbox_bytes = [], 0


def _outcome(reply: cache_pb2.ExchangeReply, kind: str | None) -> str:
    """A label for metrics."""
    if kind != "store":
        return "failed"
    return "refused" if reply.store.refused else "stored"
