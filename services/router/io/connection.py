"""The generations of one caller's stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from services.router.core import events
from services.router.interfaces import Ask, Opener, Place
from services.router.io.books import AFTER_ACCEPTED, Books
from services.router.io.outbox import Outbox
from streamway.attach import AttachPool
from streamway.auth import Identity
from streamway.errors import DuplicateId, GoingAway, Internal, InvalidArgument, StreamwayError
from streamway.runtime.ids import new_secret_id
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, router_pb2
from streamway.v1.inference_pb2 import View

_log = structlog.get_logger("router")


@dataclass(slots=True)
class _Live:
    """A generation that is being decided, or whose events are relayed. `number` is its subscription, 0 for none yet."""

    ask: Ask
    relayed: bool
    place: Place | None = None
    number: int = 0


class Connection:
    """Opens, relays and cancels what one Connect or Generate call asks for. Everything it has to say goes to `outbox`.

    Each generation fails alone: a refusal is an error event of that generation. Deciding goes on in `scope`, which outlives
    the call, so that a task that is on its way into a lane is never half done.
    """

    def __init__(
        self, identity: Identity, opener: Opener, books: Books, pool: AttachPool, scope: TaskScope, outbox: Outbox
    ) -> None:
        self._identity = identity
        self._opener = opener
        self._books = books
        self._pool = pool
        self._scope = scope
        self.outbox = outbox
        outbox.overflowed = self.leave
        self._live: dict[str, _Live] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._left = False
        self._finishing = False

    @property
    def busy(self) -> bool:
        """Something is being decided or relayed."""
        return bool(self._live)

    async def quiet(self) -> None:
        """Returns when nothing is."""
        await self._quiet.wait()

    def obey(self, command: router_pb2.ConnectCommand) -> None:
        """Does what a command says. Never raises."""
        match command.WhichOneof("command"):
            case "open":
                self.open(command.open.request, command.open.delivery)
            case "cancel":
                self.cancel(command.cancel.generation)
            case _:
                self.fail("", InvalidArgument("command", "must be open or cancel"))

    def open(self, request: common_pb2.GenerationRequest, delivery: router_pb2.Delivery.ValueType) -> None:
        """Begins to decide about a generation."""
        generation = request.generation
        if generation in self._live:
            self.fail(generation, DuplicateId(generation))
            return
        request.tenant = self._identity.tenant_for(request.tenant)
        live = _Live(Ask(request), relayed=delivery != router_pb2.Delivery.DELIVERY_LOCATION)
        self._live[generation] = live
        self._quiet.clear()
        self._scope.spawn(self._decide(generation, live), "open")

    def cancel(self, generation: str) -> None:
        """Cancels a generation of this stream; one that has ended is ignored."""
        live = self._live.get(generation)
        if live is not None and live.place is None:
            live.ask.cancelled = True
        else:
            # A mesh peer speaks for every tenant; anybody else only for its own.
            self._books.cancel(generation, None if self._identity.mesh else self._identity.tenant)

    def finish(self) -> None:
        """The caller has no more commands: the outbox ends when everything is said."""
        self._finishing = True
        self._settle()

    def going_away(self) -> None:
        """Ends what is relayed, since the process ends."""
        for generation, live in list(self._live.items()):
            if live.place is not None:
                self._stop(live)
                self.fail(generation, GoingAway("router"))
        self.finish()

    def leave(self) -> None:
        """The caller is gone: what was relayed, or not told where it is, is cancelled. What an edge reads elsewhere lives on."""
        self._left = True
        self.outbox.end()
        for live in self._live.values():
            live.ask.cancelled = True
            if live.place is not None:
                self._stop(live)
        self._live = {generation: live for generation, live in self._live.items() if live.place is None}
        self._settle()

    def fail(self, generation: str, error: StreamwayError, delivered_until: int = 0) -> None:
        """Ends a generation for which no worker speaks."""
        self.outbox.put([events.failed(generation, error, delivered_until)])
        self.ended(generation)

    def ended(self, generation: str) -> None:
        """A generation has ended here, or is read elsewhere."""
        self._live.pop(generation, None)
        self._settle()

    async def _decide(self, generation: str, live: _Live) -> None:
        try:
            opened = await self._opener.open(live.ask)
        except StreamwayError as refused:
            self.fail(generation, refused)
            return
        except Exception:  # noqa: BLE001 — one generation's fault must not end the stream of the others
            request_id = new_secret_id()
            _log.exception("open_failed", generation=generation, request_id=request_id)
            self.fail(generation, Internal(request_id))
            return
        self.outbox.put(opened.events)
        if opened.place is None:
            self.ended(generation)
            return
        live.place = opened.place
        if live.ask.cancelled:
            self._books.cancel_at(opened.place, generation)
        if live.relayed and not self._left:
            client = self._pool.client(opened.place.address, opened.place.worker)
            relay = _Relay(self, generation)
            live.number = client.subscribe(generation, AFTER_ACCEPTED, View.VIEW_LIVE, relay)
        else:
            self.ended(generation)

    def _stop(self, live: _Live) -> None:
        if live.place is None:
            return
        generation = live.ask.request.generation
        self._pool.client(live.place.address, live.place.worker).unsubscribe(live.number)
        self._books.cancel_at(live.place, generation)

    def _settle(self) -> None:
        if self._live:
            return
        self._quiet.set()
        if self._finishing:
            self.outbox.end()


class _Relay:
    """An AttachSink that passes events on under their generation's name."""

    __slots__ = ("_connection", "_generation", "_put")

    def __init__(self, connection: Connection, generation: str) -> None:
        self._connection = connection
        self._generation = generation
        self._put = connection.outbox.put

    def event(self, event: common_pb2.Event, kind: str) -> None:
        event.subscription = 0
        event.generation = self._generation
        self._put((event,))
        if kind in events.TERMINAL:
            self._connection.ended(self._generation)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self._connection.fail(self._generation, error, delivered_until)
