"""Where every generation of this edge is opened, resumed, followed and ended.

    class MyReader:                                          # a services.edge.interfaces.Reader
        def event(self, event, kind): ...                    # each event once, in order; exactly one terminal event last

    generation = desk.open(request, MyReader(), "websocket")            # a new one; `accepted` comes first
    generation = desk.resume(id, tenant, cursor, MyReader(), "sse")     # one that exists anywhere; `resumed` comes first
    generation.cancel()              # stop it; the terminal event still comes
    generation.leave()               # read no more: with grace it goes on, without it is cancelled
    generation.pause() / .go_on()    # a client that reads too slowly is served from the channel later
    generation.cursor, .position, .id, .session, .durable, .ended
    await desk.cancel(id, tenant)    # one that nobody reads here; its state

Nothing comes to a reader before `open` or `resume` has returned. Any number of readers may read one generation.
`generation.py` has the life of one.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from services.edge.core.buffer_share import RequestRoom
from services.edge.core.hop_facts import name_of, of_request
from services.edge.core.pressure import FirstTokenSample
from services.edge.interfaces import Reader
from services.edge.io.generation import Generation
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.routers import Routers
from streamway.errors import (
    EdgeOverloaded,
    GenerationNotFound,
    GoingAway,
    MemoryPressure,
    RouterUnavailable,
    StreamwayError,
)
from streamway.following import ReaderPorts
from streamway.journal.cursor import Cursor
from streamway.runtime.clock import Clock
from streamway.runtime.ids import is_generation_id
from streamway.telemetry.context import current
from streamway.telemetry.facts import Facts
from streamway.telemetry.hops import Hop, Hops
from streamway.tenancy import carry
from streamway.tenancy.watching import TenancyWatch
from streamway.v1 import common_pb2
from streamway.v1.router_pb2 import GenerationState
from streamway.valkey.keys import is_bulk, task_class

__all__ = ["Desk", "Generation"]

_log = structlog.get_logger("edge")
# How often the worker of a paused generation hears that its client is still there; well below every grace.
_TOUCH_S: Final = 4.0
# Bulk work that waits for the pressure to be over; more is refused.
_MOST_BULK: Final = 1_000


class Desk:
    """Opens and resumes generations. One for the process."""

    def __init__(
        self,
        ports: ReaderPorts,
        routers: Routers,
        metrics: EdgeMetrics,
        clock: Clock,
        router_wait_s: float,
        bulk_wait_s: float,
        tenants: TenancyWatch,
        room: RequestRoom,
        hops: Hops,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.ports = ports
        self.metrics = metrics
        self.room = room
        self.hops = hops
        # The process stops: WebSockets may open nothing more. `refusing`: nobody may.
        self.draining = False
        self.refusing = False
        # Generations that were opened or resumed, ever; and the waits for first tokens of late.
        self.admitted = 0
        self.first_tokens = FirstTokenSample()
        self._idle = asyncio.Event()
        self._routers = routers
        self._clock = clock
        self._router_wait_s = router_wait_s
        self._tenants = tenants
        self._live: set[Generation] = set()
        # Those that no router has, each with the timer that gives it up.
        self._waiting: dict[Generation, asyncio.TimerHandle] = {}
        # Bulk work that waits since more requests come than this edge is made for.
        self._bulk: dict[Generation, asyncio.TimerHandle] = {}
        self._bulk_wait_s = bulk_wait_s
        self._bulk_waits = False

    def __len__(self) -> int:
        """Generations read now."""
        return len(self._live)

    def open(
        self, request: common_pb2.GenerationRequest, reader: Reader, surface: str, *, follow: bool = True
    ) -> Generation:
        """Starts a generation; what comes of it goes to `reader`.

        `request` must have its generation, session, tenant and `on_disconnect`. Without `follow` the reader is told only
        whether it was accepted: it runs in the background. Raises GoingAway when the process stops, and MemoryPressure when the
        requests that no router has yet fill their part of the memory.
        """
        size_bytes = request.ByteSize()
        if not self.room.admits(size_bytes):
            raise MemoryPressure("edge", any_work=True)
        self._check()
        hop = self._begin(request.traceparent, request.generation, name_of(request), of_request(request, surface))
        request.traceparent = hop.context.traceparent
        generation = self._admit(request.generation, request.tenant, reader, surface, hop)
        generation.follow = follow
        carry(request, self._tenants.tenancy)
        generation.begin(request, size_bytes, self._clock.unix())
        self.place_again(generation)
        return generation

    def resume(self, generation_id: str, tenant: str, cursor: Cursor, reader: Reader, surface: str) -> Generation:
        """Reads a generation from a cursor on, wherever it runs or ran; START is its beginning.

        What became of the cursor is told by `resumed`. A generation that is not this tenant's ends with GenerationNotFound,
        whether there is one or not. Raises GenerationNotFound for what is no id at all, and GoingAway when the process stops.
        """
        if not is_generation_id(generation_id):
            raise GenerationNotFound(generation_id)
        self._check()
        hop = self._begin("", generation_id, "streamway.resume", {"streamway.surface": surface})
        generation = self._admit(generation_id, tenant, reader, surface, hop)
        generation.resume(cursor)
        return generation

    def place_again(self, generation: Generation) -> None:
        """Opens it at a router that is up, or waits for one. Bulk work may have to wait here first."""
        request = generation.placement.request
        if self._bulk_waits and request is not None and is_bulk(task_class(request.priority)):
            self._hold(generation)
            return
        link = self._routers.pick(generation.session)
        if link is not None:
            generation.placement.open(generation, link)
            return
        self._waiting[generation] = self.loop.call_later(self._router_wait_s, self._give_up, generation)

    def router_up(self) -> None:
        """A router can take generations: those that wait go there."""
        waiting, self._waiting = self._waiting, {}
        for generation, timer in waiting.items():
            timer.cancel()
            if not generation.ended:
                self.place_again(generation)

    @property
    def bulk_waiting(self) -> int:
        """Bulk work that waits here until the pressure is over."""
        return len(self._bulk)

    def hold_bulk(self, yes: bool) -> None:
        """Bulk work waits here, for `bulk_wait_s` at most, or goes on."""
        self._bulk_waits = yes
        if not yes:
            held, self._bulk = self._bulk, {}
            for generation, timer in held.items():
                timer.cancel()
                self.place_again(generation)

    def ended(self, generation: Generation, outcome: str) -> None:
        """A generation is read no more."""
        self._live.discard(generation)
        timer = self._waiting.pop(generation, None) or self._bulk.pop(generation, None)
        if timer is not None:
            timer.cancel()
        if not self._live:
            self._idle.set()
        self.metrics.live[generation.surface] -= 1
        self.metrics.generations.labels(generation.surface, outcome).inc()

    async def cancel(self, generation_id: str, tenant: str) -> GenerationState.ValueType:
        """Stops a generation of this tenant wherever it is; its state before. Raises GenerationNotFound, or
        RouterUnavailable when no router answers."""
        if not is_generation_id(generation_id):
            raise GenerationNotFound(generation_id)
        return await self._routers.cancel(generation_id, tenant)

    def cancel_elsewhere(self, generation_id: str, tenant: str) -> None:
        """The same without waiting, for a reader that has no way of its own."""
        self.ports.scope.spawn(self._cancel_quietly(generation_id, tenant), "cancel")

    async def emptied(self) -> None:
        """Returns when no generation is read."""
        while self._live:
            self._idle.clear()
            await self._idle.wait()

    def fail_all(self, error: StreamwayError) -> None:
        """Ends what is still read, when the grace is over. What can be resumed elsewhere goes on."""
        for generation in list(self._live):
            generation.detach(error)

    async def keep_paused_alive(self) -> None:
        """Tells the workers of paused generations that somebody will read on, until cancelled."""
        while True:
            await asyncio.sleep(_TOUCH_S)
            for generation in [generation for generation in self._live if generation.paused]:
                try:
                    await generation.touch()
                except StreamwayError as problem:
                    _log.warning("paused_not_kept", generation=generation.id, problem=problem.name)

    def _check(self) -> None:
        if self.refusing:
            raise GoingAway("edge")

    def _begin(self, traceparent: str, generation: str, name: str, facts: Facts) -> Hop:
        """Under the ids of the client's request, which has been told them."""
        here = current.get()
        if here is None or (traceparent and here.traceparent != traceparent):
            here = self.hops.context(traceparent)
        return self.hops.begin(name, here, generation, kind="server", facts=facts, counted=True)

    def _admit(self, generation_id: str, tenant: str, reader: Reader, surface: str, hop: Hop) -> Generation:
        generation = Generation(self, generation_id, tenant, reader, surface, hop)
        self._live.add(generation)
        self.admitted += 1
        self.metrics.live[surface] += 1
        return generation

    async def _cancel_quietly(self, generation_id: str, tenant: str) -> None:
        try:
            await self._routers.cancel(generation_id, tenant)
        except StreamwayError as problem:
            _log.warning("cancel_not_sent", generation=generation_id, problem=problem.name)

    def _hold(self, generation: Generation) -> None:
        # Nobody is told before `open` has returned.
        wait_s = self._bulk_wait_s if len(self._bulk) < _MOST_BULK else 0.0
        self._bulk[generation] = self.loop.call_later(wait_s, self._held_for_long, generation)

    def _held_for_long(self, generation: Generation) -> None:
        self._bulk.pop(generation, None)
        generation.fail(EdgeOverloaded())

    def _give_up(self, generation: Generation) -> None:
        self._waiting.pop(generation, None)
        generation.fail(RouterUnavailable())
