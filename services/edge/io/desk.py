"""Where every generation of this edge is opened, followed and ended.

A generation's life here:

    waiting ──► opened at a router ──► located at a worker ──► ended
       ▲  no router    │  router gone before `accepted`          ▲
       └───────────────┘  (the same id at the next router)       │
                       └── answered from the cache, or refused ──┘

Its events come from the router (`accepted`, refusals, cache hits) and then from the worker, over `Attach`. Whoever opened it
reads them through a `Reader`, exactly one terminal event last.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from services.edge.interfaces import Reader
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.router_link import RouterLink
from services.edge.io.routers import Routers
from streamway.attach import AttachPool
from streamway.errors import (
    Cancelled,
    DeadlineExceeded,
    GoingAway,
    RouterUnavailable,
    StreamwayError,
    from_status,
    to_status,
)
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2, inference_pb2

_log = structlog.get_logger("edge")

# The mesh gets this long beyond a deadline to say itself how the generation ended.
_DEADLINE_MARGIN_S: Final = 0.25
_MOST_PLACEMENTS: Final = 8


class Generation:
    """One generation that a client of this edge reads."""

    __slots__ = (
        "_cancelled",
        "_clock_timer",
        "_desk",
        "_life",
        "_link",
        "_number",
        "_opened",
        "_placements",
        "_reader",
        "_request",
        "_tokens",
        "ended",
        "id",
        "position",
        "session",
        "source",
        "surface",
        "worker",
    )

    def __init__(self, desk: Desk, request: common_pb2.GenerationRequest, reader: Reader, surface: str) -> None:
        self.id = request.generation
        self.surface = surface
        self.session = request.session
        self.source = ""
        self.worker = ""
        self.position = 0
        self.ended = False
        self._desk = desk
        # Kept until the mesh has accepted it: then it may be large and is not needed any more.
        self._request: common_pb2.GenerationRequest | None = request
        self._reader = reader
        self._link: RouterLink | None = None
        self._life = 0
        self._number = 0
        self._placements = 0
        self._cancelled = False
        self._tokens = desk.metrics.tokens
        self._opened = desk.loop.time()
        self._clock_timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> bool:
        """No router has it."""
        return self._link is None and not self.ended and not self.source

    def place(self, link: RouterLink) -> None:
        """Opens it at a router."""
        if self._request is None:
            return
        self._placements += 1
        self._link, self._life = link, link.life
        link.open(self, self._request)

    def cancel(self) -> None:
        """The client wants it to stop. The terminal event still comes; at once when nobody has it yet."""
        if self._cancelled or self.ended:
            return
        self._cancelled = True
        if self.waiting:
            self.fail(Cancelled())
            return
        self._send_cancel()

    def leave(self) -> None:
        """The client is gone: nothing is read any more, and the generation is cancelled wherever it is."""
        if self.ended:
            return
        if self._number:
            self._desk.workers.client(self.source, self.worker).unsubscribe(self._number)
        if not self._cancelled:
            self._cancelled = True
            self._send_cancel()
        self._end("left")

    def routed(self, link: RouterLink, event: common_pb2.Event, kind: str) -> None:
        """An event from the router."""
        if self.ended or link is not self._link:
            return
        if kind == "error" and not self.position and self._goes_elsewhere(event):
            link.leaving = True
            self._link = None
            self._desk.place_again(self)
            return
        if kind == "accepted":
            self._request = None
            accepted = event.accepted
            if accepted.source:
                self.source, self.worker = accepted.source, accepted.worker
                client = self._desk.workers.client(self.source, self.worker)
                self._number = client.subscribe(self.id, event.position, inference_pb2.VIEW_LIVE, self)
                link.settle(self.id)
        self.event(event, kind)

    def unrouted(self, link: RouterLink) -> None:
        """The router is gone before it had said where this runs, or in the middle of an answer from the cache."""
        if self.ended or link is not self._link or self.source:
            return
        self._link = None
        if self._cancelled:
            self.fail(Cancelled())
        elif self.position or self._placements >= _MOST_PLACEMENTS:
            self.fail(RouterUnavailable())
        else:
            self._desk.place_again(self)

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event, from worker or router. Per-token path."""
        if event.position:
            self.position = event.position
        if kind == "token":
            if self._opened:
                self._first_token()
            self._tokens[self.surface] += event.token.units or 1
            self._reader.event(event, kind)
            return
        if kind in ("finished", "error"):
            if self.ended:
                return
            self._number = 0
            outcome = kind if kind == "finished" else from_status(event.error.status).name
            self._end(outcome)
        self._reader.event(event, kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """The worker is gone for good."""
        self.position = max(self.position, delivered_until)
        self._number = 0
        self.fail(error)

    def fail(self, error: StreamwayError) -> None:
        """Ends it with an error that this edge makes; such an event has no position."""
        if self.ended:
            return
        if self._number:
            self._desk.workers.client(self.source, self.worker).unsubscribe(self._number)
            self._number = 0
        self._end(error.name)
        problem = common_pb2.Error(status=to_status(error), delivered_until=self.position)
        self._reader.event(common_pb2.Event(generation=self.id, error=problem), "error")

    def expire_at(self, deadline_unix_ms: int, now_unix_s: float) -> None:
        """Ends it when its deadline has passed and nobody else has said so."""
        delay_s = deadline_unix_ms / 1000 - now_unix_s + _DEADLINE_MARGIN_S
        self._clock_timer = self._desk.loop.call_later(max(0.0, delay_s), self._expire)

    def _expire(self) -> None:
        if self.ended:
            return
        if not self._cancelled:
            self._cancelled = True
            self._send_cancel()
        self.fail(DeadlineExceeded("the answer was being made" if self.position > 1 else "it waited"))

    def _first_token(self) -> None:
        self._desk.metrics.ttft.labels(self.surface).observe(self._desk.loop.time() - self._opened)
        self._opened = 0.0

    def _goes_elsewhere(self, event: common_pb2.Event) -> bool:
        """The router refused since it shuts down: another one may take the same request."""
        if self._cancelled or self._placements >= _MOST_PLACEMENTS:
            return False
        return isinstance(from_status(event.error.status), GoingAway)

    def _send_cancel(self) -> None:
        link = self._link
        if link is not None and link.live and link.life == self._life:
            link.cancel(self.id)
        elif self.source:
            self._desk.workers.client(self.source, self.worker).cancel(self.id)

    def _end(self, outcome: str) -> None:
        self.ended = True
        self._request = None
        if self._clock_timer is not None:
            self._clock_timer.cancel()
        if self._link is not None:
            self._link.settle(self.id)
        self._desk.ended(self, outcome)


class Desk:
    """Opens generations. One for the process."""

    def __init__(self, workers: AttachPool, metrics: EdgeMetrics, clock: Clock, router_wait_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.workers = workers
        self.metrics = metrics
        # The process stops: WebSockets may open nothing more. `refusing`: nobody may.
        self.draining = False
        self.refusing = False
        self._idle = asyncio.Event()
        self._routers: Routers | None = None
        self._clock = clock
        self._router_wait_s = router_wait_s
        self._live: dict[str, Generation] = {}
        # Those that no router has, each with the timer that gives it up.
        self._waiting: dict[Generation, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """Generations open now."""
        return len(self._live)

    def use(self, routers: Routers) -> None:
        """Gives it the routers, which in turn call back here."""
        self._routers = routers

    def open(self, request: common_pb2.GenerationRequest, reader: Reader, surface: str) -> Generation:
        """Starts a generation; what comes of it goes to `reader`, never before this returns.

        `request` must have its generation, session and tenant. Raises GoingAway when the process stops.
        """
        if self.refusing:
            raise GoingAway("edge")
        generation = Generation(self, request, reader, surface)
        self._live[generation.id] = generation
        self.metrics.live.labels(surface).inc()
        if request.deadline_unix_ms:
            generation.expire_at(request.deadline_unix_ms, self._clock.unix())
        self.place_again(generation)
        return generation

    def place_again(self, generation: Generation) -> None:
        """Opens it at a router that is up, or waits for one."""
        link = self._routers.pick(generation.session) if self._routers is not None else None
        if link is not None:
            generation.place(link)
            return
        self._waiting[generation] = self.loop.call_later(self._router_wait_s, self._give_up, generation)

    def router_up(self) -> None:
        """A router can take generations: those that wait go there."""
        waiting, self._waiting = self._waiting, {}
        for generation, timer in waiting.items():
            timer.cancel()
            if not generation.ended:
                self.place_again(generation)

    def ended(self, generation: Generation, outcome: str) -> None:
        """A generation has ended."""
        self._live.pop(generation.id, None)
        timer = self._waiting.pop(generation, None)
        if timer is not None:
            timer.cancel()
        if not self._live:
            self._idle.set()
        self.metrics.live.labels(generation.surface).dec()
        self.metrics.generations.labels(generation.surface, outcome).inc()

    async def emptied(self) -> None:
        """Returns when no generation is open."""
        while self._live:
            self._idle.clear()
            await self._idle.wait()

    def fail_all(self, error: StreamwayError) -> None:
        """Ends what is still open, when the grace is over."""
        for generation in list(self._live.values()):
            generation.cancel()
            generation.fail(error)

    def _give_up(self, generation: Generation) -> None:
        self._waiting.pop(generation, None)
        generation.fail(RouterUnavailable())
