"""A hand-written worker that also writes response channels, as an adapter does: generations that an edge can resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from services.edge.app import Edge
from services.edge.settings import EdgeSettings
from streamway.config import SharedSettings
from streamway.journal import Cursor, Entry, Kind, Line, encode_events
from streamway.journal.entries import Begin
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.hand_router import HandRouter, RouterServer, accepted
from tests.support.inference_service import HandServer, HandWorker, finished, token

EPOCH = 1 << 20 | 7
RELAXED = common_pb2.DURABILITY_RELAXED


class Answer:
    """One durable generation: what it says goes to the channel, then to the worker's readers."""

    def __init__(self, world: JournaledWorld, request: common_pb2.GenerationRequest) -> None:
        self.world = world
        self.id = request.generation
        self.request = request
        self.epoch = EPOCH
        self.position = 1
        self.line = Line(((0, 1),))
        self.worker = world.worker
        self.source = world.source
        self.name = "hand"

    async def accept(self) -> None:
        """What a router does."""
        event = accepted(self.request, "", "", durability=RELAXED)
        event.ClearField("generation")
        await self._record("running")
        await self._add(Entry(0, 1, 1, Kind.ACCEPTED, encode_events([event])))

    async def begin(self, *, live: bool = True) -> None:
        """The engine call begins; a later one takes over."""
        start, before = self.position + 1, self.line.epoch
        self.position = start
        self.line = self.line.extend(self.epoch, start)
        event = common_pb2.Event(started=common_pb2.Started(worker=self.name))
        begin = Begin(f"ref-{self.epoch}", self.name, self.line, "gone" if before else "")
        await self._add(Entry(self.epoch, start, start, Kind.BEGIN, encode_events([event]), begin))
        event.epoch, event.position = self.epoch, start
        if before:
            event.taken_over.CopyFrom(common_pb2.TakenOver(worker=self.name, from_worker="gone", line=str(self.line)))
        else:
            event.started.line = str(self.line)
        if live:
            self.worker.push(self.id, event)
        await self._record("running")

    async def say(self, *texts: str, live: bool = True, kept: bool = True) -> None:
        """Tokens, one event and one entry each."""
        for text in texts:
            self.position += 1
            event = token(self.position, text, self.epoch)
            if kept:
                await self._add(Entry(self.epoch, self.position, self.position, Kind.TOKENS, encode_events([event])))
            if live:
                self.worker.push(self.id, event)

    async def put(self, event: common_pb2.Event) -> None:
        """An event made by the test, as an entry of its own."""
        first = event.first_position or event.position
        self.position = event.position
        await self._add(Entry(self.epoch, first, event.position, Kind.TOKENS, encode_events([event])))
        self.worker.push(self.id, event)

    async def end(self, *last_words: str, live: bool = True, **usage: int) -> None:
        """It ends well; `last_words` are in the entry of the end, as they are where an engine sends both at once."""
        first, events = self.position + 1, []
        for text in last_words:
            self.position += 1
            events.append(token(self.position, text, self.epoch))
        self.position += 1
        end = finished(self.position, self.epoch, **(usage or {"prompt_tokens": 3, "completion_tokens": 2}))
        events.append(end)
        await self._add(Entry(self.epoch, first, self.position, Kind.END, encode_events(events)))
        if live:
            self.worker.push(self.id, *events)
        await self._record("finished")

    @property
    def cursor(self) -> str:
        """Of the last event."""
        return str(Cursor(self.line.owner(self.position), self.position))

    async def _add(self, entry: Entry) -> None:
        fields = entry.fields()
        values: dict[Any, Any] = dict(zip(fields[::2], fields[1::2], strict=True))
        await self.world.valkey.xadd(keys.response(self.id), values, id=str(entry.id))

    async def _record(self, state: str) -> None:
        request = self.request
        fields: dict[Any, Any] = {
            "state": state,
            "worker": self.name,
            "tenant": request.tenant,
            "model": request.model,
            "session": request.session,
            "durability": int(RELAXED),
        }
        await self.world.valkey.hset(keys.generation(self.id), mapping=fields)
        router = self.world.router
        router.tenants[self.id] = request.tenant
        router.known[self.id] = router_pb2.GetGenerationResponse(
            generation=self.id,
            state=router_pb2.GenerationState.Value(f"GENERATION_STATE_{state.upper()}"),
            worker=self.name,
            source=self.source,
            epoch=self.line.epoch,
            durability=RELAXED,
        )


class JournaledWorld:
    """A store, a router and a worker by hand, and edges."""

    def __init__(self, valkey: Redis, url: str) -> None:
        self.valkey = valkey
        self.shared = SharedSettings(valkey_url=url)
        self.router = HandRouter()
        self.worker = HandWorker()
        self.source = ""
        self.edges: list[Edge] = []
        self.worker_server: HandServer | None = None
        self._router_address = ""
        self._beats: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.worker_server = HandServer(self.worker, self.shared)
        self._router_server = RouterServer(self.router, self.shared)
        self.router.source = self.source = await self.worker_server.start()
        self._router_address = await self._router_server.start()
        self.router.answer = self.locate
        self._beats = asyncio.get_running_loop().create_task(self._beat())

    async def edge(self, shared: dict[str, Any] | None = None, **settings: Any) -> Edge:
        """One more edge on the same mesh."""
        values = {"port": 0, "operations_port": 0, "routers": [self._router_address], "drain_serve_s": 0.1, **settings}
        common = self.shared.model_copy(update=shared or {})
        edge = Edge(EdgeSettings(**values), common)
        await edge.start()
        self.edges.append(edge)
        await self.router.until(lambda: self.router.streams >= len(self.edges))
        return edge

    def locate(self, request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
        """The router's answer: durable, at the worker."""
        return [accepted(request, "hand", self.source, durability=RELAXED)]

    async def answer(self, number: int = 1) -> Answer:
        """The `number`-th generation that was opened, with its channel begun."""
        made = Answer(self, await self.router.asked(number))
        await made.accept()
        await made.begin()
        return made

    async def close(self) -> None:
        for edge in self.edges:
            await edge.close()
        await self._router_server.stop()
        if self.worker_server is not None:
            await self.worker_server.stop()
        if self._beats is not None:
            self._beats.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.worker.beat()


@asynccontextmanager
async def journaled_world(valkey: Redis, url: str) -> AsyncIterator[JournaledWorld]:
    """Everything on free ports, without an edge yet."""
    world = JournaledWorld(valkey, url)
    await world.start()
    try:
        yield world
    finally:
        await world.close()
