"""One `Connect` stream to one router."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import structlog

from services.edge.io.metrics import EdgeMetrics
from streamway.config.shared import SharedSettings
from streamway.errors import RouterUnavailable, from_status
from streamway.rpc import mesh_metadata, open_channel, own_call
from streamway.runtime.pauses import Pauses
from streamway.runtime.spacing import Spacing
from streamway.runtime.tasks import TaskScope
from streamway.runtime.wire import part, repeated
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc

_log = structlog.get_logger("edge")

MOST_COMMANDS: Final = 1000
_CONNECT: Final = "/streamway.v1.RouterService/Connect"
# A message of many opens stays small beside the message limit; a larger open goes alone.
_BATCH_BYTES: Final = 1024 * 1024
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class Routed(Protocol):
    """A generation that was opened on a link."""

    id: str

    def routed(self, link: RouterLink, event: common_pb2.Event, kind: str) -> None:
        """An event that the router sent."""
        ...

    def unrouted(self, link: RouterLink) -> None:
        """The stream broke, or the router did not answer in time; nothing more comes from it."""
        ...


class LinkOwner(Protocol):
    """Whoever holds the links."""

    def link_up(self, link: RouterLink) -> None:
        """The link can take generations."""
        ...

    def batch_done(self) -> None:
        """A batch of a router was worked through."""
        ...


class RouterLink:
    """Opens, cancels and locates generations at one router; connects again after each break, until closed."""

    def __init__(
        self,
        address: str,
        shared: SharedSettings,
        scope: TaskScope,
        owner: LinkOwner,
        metrics: EdgeMetrics,
        answer_s: float,
    ) -> None:
        self.address = address
        self.live = False
        # Counts the streams, since a cancel is only known on the stream of its open.
        self.life = 0
        # The router said that it goes away; until its next stream.
        self.leaving = False
        # It takes commands and does not answer.
        self._silent = False
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._metrics = metrics
        self._answer_s = answer_s
        self._scope = scope
        self._metadata = mesh_metadata(shared)
        self._spacing = Spacing(shared.gather_late_ms / 1000)
        self._channel = open_channel(address, shared)
        self.stub: Any = router_pb2_grpc.RouterServiceStub(self._channel)
        self._stub_connect: Any = self._channel.stream_stream(
            _CONNECT, request_serializer=None, response_deserializer=router_pb2.ConnectResponse.FromString
        )
        # Commands as they are sent: large requests are not copied again and again.
        self._outbox: list[bytes] = []
        self._wake = asyncio.Event()
        # Questions that wait for their answers.
        self._asked: dict[int, asyncio.Future[router_pb2.GetGenerationResponse]] = {}
        self._questions = 0
        # Generations that the router still sends events for, and until when those must be answered that wait for `accepted`.
        self._open: dict[str, Routed] = {}
        self._unanswered: dict[str, float] = {}
        self._tasks = [scope.spawn(self._run(), f"router-{address}"), scope.spawn(self._time_out(), "answers")]

    def __len__(self) -> int:
        """Generations that wait for this router or get their events from it."""
        return len(self._open)

    @property
    def ready(self) -> bool:
        """New generations may be opened here."""
        return self.live and not self.leaving and not self._silent

    @property
    def metadata(self) -> grpc.aio.Metadata:
        """What each call to the router carries."""
        return self._metadata

    def open(self, generation: Routed, request: common_pb2.GenerationRequest, failed_leader: str = "") -> None:
        """Starts a generation. Its answer, or the end of the link, comes to `generation`."""
        self._open[generation.id] = generation
        self._unanswered[generation.id] = self._loop.time() + self._answer_s
        rest = router_pb2.Open(delivery=router_pb2.DELIVERY_LOCATION, failed_leader=failed_leader).SerializeToString()
        opened = part(router_pb2.Open.REQUEST_FIELD_NUMBER, request.SerializeToString())
        self._outbox.append(part(router_pb2.ConnectCommand.OPEN_FIELD_NUMBER, opened, rest))
        self._wake.set()

    def cancel(self, generation: str) -> None:
        """Stops a generation that was opened here."""
        self._say(router_pb2.ConnectCommand(cancel=router_pb2.Cancel(generation=generation)))

    async def locate(
        self, request: router_pb2.GetGenerationRequest, within_s: float
    ) -> router_pb2.GetGenerationResponse:
        """Where a generation is: a command among others, since thousands may ask at once when a worker is lost.

        Raises what the router refuses with, and RouterUnavailable when it does not answer in time or the stream breaks.
        """
        if not self.live:
            raise RouterUnavailable
        self._questions += 1
        number = self._questions
        answer = self._asked[number] = self._loop.create_future()
        question = router_pb2.Locate(number=number, request=request)
        self._say(router_pb2.ConnectCommand(locate=question))
        try:
            async with asyncio.timeout(within_s):
                found: router_pb2.GetGenerationResponse = await answer
                return found
        except TimeoutError:
            raise RouterUnavailable from None
        finally:
            self._asked.pop(number, None)

    def settle(self, generation: str) -> None:
        """No more events of this generation are wanted from here."""
        self._open.pop(generation, None)
        self._unanswered.pop(generation, None)

    async def close(self) -> None:
        """Ends the stream."""
        self.live = False
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._channel.close()

    async def _run(self) -> None:
        pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            await self._channel.channel_ready()
            began = self._loop.time()
            problem = await self._connect()
            if self._loop.time() - began > 1.0:
                pauses.went_well()
            _log.warning("router_link_broken", router=self.address, problem=problem, waiting=len(self._open))
            await pauses.wait()

    async def _connect(self) -> str:
        """Holds one stream until it breaks; says why it did."""
        problem = "the router ended the stream"
        try:
            async with own_call(self._stub_connect(metadata=self._metadata)) as call:
                self._outbox.clear()
                writer = self._scope.spawn(self._write(call), "router-write")
                try:
                    self.live, self.leaving, self._silent = True, False, False
                    self.life += 1
                    self._owner.link_up(self)
                    await self._read(call)
                finally:
                    writer.cancel()
        except grpc.aio.AioRpcError as broken:
            problem = f"{broken.code().name}: {broken.details()}"[:200]
        finally:
            self.live = False
            self._drop_all()
        return problem

    def _say(self, command: router_pb2.ConnectCommand) -> None:
        self._outbox.append(command.SerializeToString())
        self._wake.set()

    async def _read(self, call: Any) -> None:
        while True:
            response = await call.read()
            if response is grpc.aio.EOF:
                return
            self._silent = False
            self._take(response.events)
            self._answer(response.located)
            self._owner.batch_done()
            del response

    def _take(self, events: Iterable[common_pb2.Event]) -> None:
        """Gives a batch to its generations, and keeps nothing of it."""
        for event in events:
            generation = self._open.get(event.generation)
            if generation is None:
                continue
            kind = event.WhichOneof("event") or ""
            self._unanswered.pop(event.generation, None)
            if kind in ("finished", "error"):
                self._open.pop(event.generation, None)
            generation.routed(self, event, kind)

    def _answer(self, located: Iterable[router_pb2.Located]) -> None:
        for answer in located:
            asked = self._asked.get(answer.number)
            if asked is None or asked.done():
                continue
            if answer.HasField("found"):
                asked.set_result(answer.found)
            else:
                asked.set_exception(from_status(answer.refused))

    async def _write(self, call: Any) -> None:
        """Sends what is queued, many commands a message. Ends when the stream does: the reader learns why."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                await self._spacing.turn()
                batch = self._next_batch()
                try:
                    await call.write(repeated(router_pb2.ConnectRequest.COMMANDS_FIELD_NUMBER, batch))
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return

    def _next_batch(self) -> list[bytes]:
        number, size = 0, 0
        for command in self._outbox[:MOST_COMMANDS]:
            size += len(command)
            if number and size > _BATCH_BYTES:
                break
            number += 1
        batch, self._outbox = self._outbox[:number], self._outbox[number:]
        return batch

    def _drop_all(self) -> None:
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(RouterUnavailable())
        lost = list(self._open.values())
        self._open.clear()
        self._unanswered.clear()
        self._metrics.router_failures += 1
        for generation in lost:
            generation.unrouted(self)
        self._owner.batch_done()

    async def _time_out(self) -> None:
        """Gives up on a router that takes commands and does not answer: it is stopped, or its machine is gone."""
        while True:
            await asyncio.sleep(self._answer_s / 10)
            now = self._loop.time()
            late = [id_ for id_, until in self._unanswered.items() if now >= until]
            if not late:
                continue
            _log.warning("router_silent", router=self.address, waiting=len(late))
            self._metrics.router_failures += 1
            self._silent = True
            for id_ in late:
                generation = self._open.pop(id_)
                del self._unanswered[id_]
                generation.unrouted(self)
            self._owner.batch_done()
