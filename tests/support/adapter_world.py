"""An inference-adapter in the test's own process: real Valkey, real gRPC, a scripted engine."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.interfaces import Backend
from services.inference_adapter.settings import AdapterSettings
from streamway.config import SharedSettings
from streamway.journal import Entry, Kind, encode_events
from streamway.lanes import TaskCopy, add_generation
from streamway.rpc.options import client_options
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from streamway.valkey import keys

WORKER = "adapter-t"


@asynccontextmanager
async def running_adapter(
    url: str, engine: Backend, *, shared: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Adapter]:
    """Starts a worker on free ports; closes it without a drain."""
    adapter = make_adapter(url, engine, shared=shared, **settings)
    await adapter.start()
    try:
        yield adapter
    finally:
        await adapter.close()


def make_adapter(url: str, engine: Backend, *, shared: dict[str, Any] | None = None, **settings: Any) -> Adapter:
    values = {"worker": WORKER, "port": 0, "operations_port": 0, **settings}
    return Adapter(AdapterSettings(**values), SharedSettings(valkey_url=url, **(shared or {})), engine)


def request(prompt: str = "hello", **fields: Any) -> common_pb2.GenerationRequest:
    """A request for the scripted model with an id of its own, without a response channel."""
    values: dict[str, Any] = {
        "generation": new_generation_id(),
        "model": "scripted",
        "tenant": "acme",
        "durability": common_pb2.DURABILITY_OFF,
        **fields,
    }
    return common_pb2.GenerationRequest(messages=[common_pb2.Message(role="user", content=prompt)], **values)


async def enqueue(
    valkey: Redis, wanted: common_pb2.GenerationRequest, *, age_s: float = 0.0, worker: str = WORKER
) -> str:
    """What a router does: channel, record, then task copy. Returns the generation."""
    if wanted.durability != common_pb2.DURABILITY_OFF:
        await open_channel(valkey, wanted.generation)
    copy = TaskCopy(wanted.generation, 1, secrets.token_hex(8))
    await add_generation(valkey, wanted, worker, copy, int((time.time() - age_s) * 1000))
    return wanted.generation


async def open_channel(valkey: Redis, generation: str) -> None:
    """A response channel with its `accepted`."""
    accepted = common_pb2.Event(accepted=common_pb2.Accepted(cursor="0-1"))
    entry = Entry(0, 1, 1, Kind.ACCEPTED, encode_events([accepted]))
    fields = entry.fields()
    await valkey.xadd(keys.response(generation), dict(zip(fields[::2], fields[1::2], strict=True)), id="0-1")


async def channel_of(valkey: Redis, generation: str) -> list[Entry]:
    """What a response channel holds."""
    rows = await valkey.execute_command("XRANGE", keys.response(generation), "-", "+")
    return [Entry.parse(id_, [part for pair in fields.items() for part in pair]) for id_, fields in rows]


class Attached:
    """One Attach stream, read in the background."""

    def __init__(self, address: str, metadata: grpc.aio.Metadata | None = None) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, options=client_options(64 * 1024 * 1024))
        self.stub: Any = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self.call: Any = self.stub.Attach(metadata=metadata)
        self.events: dict[int, list[common_pb2.Event]] = {}
        self.batches: list[int] = []
        self._numbers = 0

    async def send(self, *commands: inference_pb2.AttachCommand) -> None:
        await self.call.write(inference_pb2.AttachRequest(commands=commands))

    async def subscribe(
        self, generation: str, after: int = 0, view: str = "VIEW_LIVE", wait_ms: int = 0, after_epoch: int = 0
    ) -> int:
        self._numbers += 1
        subscribe = inference_pb2.Subscribe(
            subscription=self._numbers,
            generation=generation,
            after=after,
            after_epoch=after_epoch,
            view=inference_pb2.View.Value(view),
            wait_ms=wait_ms,
        )
        self.events[self._numbers] = []
        await self.send(inference_pb2.AttachCommand(subscribe=subscribe))
        return self._numbers

    async def unsubscribe(self, number: int) -> None:
        await self.send(inference_pb2.AttachCommand(unsubscribe=inference_pb2.Unsubscribe(subscription=number)))

    async def cancel(self, generation: str) -> None:
        await self.send(inference_pb2.AttachCommand(cancel=inference_pb2.CancelGeneration(generation=generation)))

    async def read(self) -> bool:
        """Reads one batch; False at the end of the stream."""
        response = await self.call.read()
        if response is grpc.aio.EOF:
            return False
        self.batches.append(len(response.events))
        for event in response.events:
            assert event.generation == ""
            self.events.setdefault(event.subscription, []).append(event)
        return True

    async def until(self, number: int, count: int, within_s: float = 20.0) -> list[common_pb2.Event]:
        """Reads until a subscription has at least `count` events."""
        async with asyncio.timeout(within_s):
            while len(self.events.get(number, ())) < count:
                assert await self.read(), "the stream ended"
        return self.events[number]

    async def all(self, number: int, within_s: float = 20.0) -> list[common_pb2.Event]:
        """Reads until a subscription has its terminal event."""
        async with asyncio.timeout(within_s):
            while not (got := self.events.get(number, [])) or kinds(got)[-1] not in ("finished", "error"):
                assert await self.read(), "the stream ended"
        return self.events[number]

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close()


@asynccontextmanager
async def attached(adapter: Adapter) -> AsyncIterator[Attached]:
    stream = Attached(adapter.address)
    try:
        yield stream
    finally:
        await stream.close()


async def eventually(look: Callable[[], Any], expected: Any, within_s: float = 20.0) -> None:
    """Waits until `look`, a function or coroutine function, gives `expected`."""
    until = time.monotonic() + within_s
    while True:
        found = look()
        if hasattr(found, "__await__"):
            found = await found
        if found == expected:
            return
        assert time.monotonic() < until, f"{found!r} instead of {expected!r}"
        await asyncio.sleep(0.02)


async def state_of(valkey: Redis, generation: str) -> str:
    """The state in a generation's record."""
    return (await valkey.hget(keys.generation(generation), "state") or b"").decode()


async def unfinished(valkey: Redis) -> int:
    """Tasks in the worker's lanes, read or not."""
    return sum([await valkey.xlen(keys.lane(WORKER, class_)) for class_ in keys.CLASSES])


def kinds(events: list[common_pb2.Event]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


def text(events: list[common_pb2.Event], choice: int = 0) -> str:
    return "".join(e.token.text for e in events if e.WhichOneof("event") == "token" and e.token.choice == choice)


def reason(event: common_pb2.Event) -> str:
    """The reason of an error event."""
    from streamway.errors import from_status

    return from_status(event.error.status).name


def assert_tile(events: list[common_pb2.Event], first: int = 2) -> None:
    """The ranges follow each other without gap or overlap."""
    for event in events:
        assert (event.first_position or event.position) == first, events
        first = event.position + 1
