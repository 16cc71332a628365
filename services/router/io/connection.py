"""The generations of one caller's stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from services.router.core import events
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.books import AFTER_ACCEPTED, Books
from services.router.io.locates import Locates
from services.router.io.locating import Locator
from services.router.io.outbox import Outbox
from streamway.affinity import session_key
from streamway.auth import Standing
from streamway.errors import Cancelled, DuplicateId, GoingAway, Internal, InvalidArgument, Malformed, StreamwayError
from streamway.following import GenerationReader, Place, ReaderPorts
from streamway.journal import START, Cursor
from streamway.runtime.ids import new_secret_id
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, router_pb2

_log = structlog.get_logger("router")


@dataclass(slots=True)
class _Live:
    """A generation that is being decided, or whose events are relayed by `reader`."""

    ask: Ask
    relayed: bool
    place: Place | None = None
    reader: GenerationReader | None = None
    shared: bool = False

    @property
    def grace(self) -> bool:
        """It goes on for a while when its reader leaves."""
        return self.ask.request.on_disconnect != common_pb2.ON_DISCONNECT_CANCEL


class Connection:
    """Opens, relays, resumes and cancels what one call asks for. Everything it has to say goes to `outbox`.

    Each generation fails alone: a refusal is an error event of that generation. Deciding goes on in `scope`, which outlives
    the call, so that a task that is on its way into a lane is never half done.
    """

    def __init__(
        self,
        standing: Standing,
        opener: Opener,
        books: Books,
        locator: Locator,
        ports: ReaderPorts,
        scope: TaskScope,
        outbox: Outbox,
    ) -> None:
        self._standing = standing
        self._identity = identity = standing.identity
        self._opener = opener
        self._books = books
        self._locator = locator
        self._ports = ports
        self._scope = scope
        self.outbox = outbox
        outbox.overflowed = self.leave
        self._locates = Locates(identity, locator, scope, outbox, self._settle)
        self._live: dict[str, _Live] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._left = False
        self._finishing = False
        # Nothing is told slowly any more.
        self._hurry = False
        # What the call ends with, where that is no good end.
        self._expelled: StreamwayError | None = None

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
                self.open(command.open.request, command.open.delivery, command.open.failed_leader)
            case "cancel":
                self.cancel(command.cancel.generation)
            case "locate":
                self._locates.ask(command.locate)
            case "read_on":
                self._read_on(command.read_on.request)
            case _:
                self.fail("", InvalidArgument("command", "must be open, cancel, locate or read_on"))

    def open(
        self,
        request: common_pb2.GenerationRequest,
        delivery: router_pb2.Delivery.ValueType,
        failed_leader: str = "",
    ) -> None:
        """Begins to decide about a generation."""
        generation = request.generation
        if not self._let_in(generation):
            return
        if generation in self._live:
            # The first one goes on.
            self.outbox.put([events.failed(generation, DuplicateId(generation))])
            return
        request.tenant = self._identity.tenant_for(request.tenant)
        if not self._identity.mesh:
            request.ClearField("entitlement")
        if not request.session and self._identity.session:
            request.session = session_key.of_claim(self._identity.session)
        live = _Live(
            Ask(request, failed_leader=failed_leader), relayed=delivery != router_pb2.Delivery.DELIVERY_LOCATION
        )
        self._live[generation] = live
        self._quiet.clear()
        self._scope.spawn(self._decide(generation, live), "open")

    def resume(self, generation: str, tenant: str, cursor: Cursor) -> None:
        """Goes on with a generation from a cursor. It is read, and not cancelled when the caller leaves."""
        ask = Ask(common_pb2.GenerationRequest(generation=generation, tenant=tenant))
        live = self._live[generation] = _Live(ask, relayed=True)
        self._quiet.clear()
        live.reader = GenerationReader(self._ports, generation, tenant, _Relay(self, generation), cursor=cursor)
        live.reader.resume()

    def _read_on(self, request: router_pb2.ResumeRequest) -> None:
        try:
            generation, cursor = where_from(request)
        except StreamwayError as wrong:
            self.outbox.put([events.failed(request.generation, wrong)])
            return
        if not self._let_in(generation):
            return
        if generation in self._live:
            self.outbox.put([events.failed(generation, DuplicateId(generation))])
            return
        self.resume(generation, self._identity.tenant_for(request.tenant), cursor)

    def cancel(self, generation: str) -> None:
        """Cancels a generation; one that has ended is ignored."""
        live = self._live.get(generation)
        if live is not None and live.place is None and live.reader is None:
            live.ask.cancelled = True
        elif live is not None and live.reader is not None and (live.shared or live.reader.shared):
            cursor = live.reader.cursor
            self._stop(live, cancel=True)
            self.fail(generation, Cancelled(), cursor.position)
        elif live is None or live.reader is None or not live.reader.cancel():
            # A mesh peer speaks for every tenant; anybody else only for its own.
            tenant = None if self._identity.mesh else self._identity.tenant
            if not self._books.cancel(generation, tenant):
                self._scope.spawn(self._cancel_elsewhere(generation), "cancel")

    def finish(self) -> None:
        """The caller has no more commands: the outbox ends when everything is said."""
        self._finishing = True
        self._settle()

    def review(self) -> bool:
        """Ends the call, as the end of the process would, when its caller would not be let in any more. True the first time."""
        try:
            self._standing.check()
        except StreamwayError as lost:
            first, self._expelled = self._expelled is None, lost
            self.going_away(GoingAway("router", "its credentials count no more"))
            return first
        return False

    def going_away(self, error: StreamwayError) -> None:
        """Ends what is relayed, since the process or this call ends. What has a channel can be resumed at another router."""
        self._hurry = True
        for generation, live in list(self._live.items()):
            if live.reader is not None:
                self._stop(live, cancel=not (live.grace and live.reader.durable))
                self.fail(generation, error, live.reader.cursor.position)
        self._locates.close(error)
        self.finish()

    def leave(self) -> None:
        """The caller is gone. What was relayed lives on for its grace if it has one, else it is cancelled; what was to be relayed
        and was not accepted yet is cancelled, since nothing was promised. What is read elsewhere lives on: whoever asked for
        it may ask again, here or at another router, under the same id."""
        self._left = True
        self._locates.close()
        self.outbox.end()
        for live in self._live.values():
            live.ask.abandoned = live.relayed or not live.grace
            self._stop(live, cancel=not live.grace)
        self._live = {
            generation: live for generation, live in self._live.items() if live.place is None and live.reader is None
        }
        self._settle()

    def fail(self, generation: str, error: StreamwayError, delivered_until: int = 0) -> None:
        """Ends a generation for which no worker speaks."""
        self.outbox.put([events.failed(generation, error, delivered_until)])
        self.ended(generation)

    def ended(self, generation: str) -> None:
        """A generation has ended here, or is read elsewhere."""
        self._live.pop(generation, None)
        self._settle()

    def _let_in(self, generation: str) -> bool:
        """False, and `generation` is refused, when the caller's credentials count no more."""
        try:
            self._standing.check()
        except StreamwayError as lost:
            self.outbox.put([events.failed(generation, lost)])
            return False
        return True

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
        if opened.pace:
            await self._tell_slowly(generation, live, opened)
            return
        self.outbox.put(opened.events)
        live.place, live.shared = opened.place, bool(opened.follows) or live.ask.flight is not None
        if live.ask.unwanted and opened.place is not None and not opened.attached_to:
            if not live.shared or not self._books.cancel(generation, None):
                self._books.cancel_at(opened.place, generation)
            elif opened.follows:
                self.fail(generation, Cancelled(), 1)
                return
        if self._left or not self._reads_here(live, opened):
            self.ended(generation)
            return
        self._read(generation, live, opened)

    async def _tell_slowly(self, generation: str, live: _Live, opened: Opened) -> None:
        """An answer that is here whole. A cancel ends it where it is."""
        position = 0
        for event, pause_s in zip(opened.events, opened.pace, strict=True):
            if pause_s and not self._hurry:
                await asyncio.sleep(pause_s)
            if self._left:
                break
            if live.ask.cancelled:
                self.fail(generation, Cancelled(), position)
                return
            self.outbox.put((event,))
            position = event.position
        self.ended(generation)

    def _reads_here(self, live: _Live, opened: Opened) -> bool:
        """Its events follow on this stream."""
        if opened.place is None and not opened.attached_to:
            return False
        # Who was sent elsewhere reads there; without a worker there is nowhere to send it.
        mine = opened.attached_to in ("", live.ask.request.generation)
        return live.relayed or (opened.place is None and mine)

    def _read(self, generation: str, live: _Live, opened: Opened) -> None:
        read = opened.follows or opened.attached_to or generation
        relay = _Relay(self, generation)
        live.reader = GenerationReader(
            self._ports, read, live.ask.request.tenant, relay, cursor=AFTER_ACCEPTED, durable=opened.durable
        )
        if opened.attached_to and opened.durable:
            live.reader.go_on()
        elif opened.place is not None:
            live.reader.attach(opened.place)
        else:
            live.reader.resume()

    def _stop(self, live: _Live, *, cancel: bool) -> None:
        if live.reader is None:
            return
        live.reader.close()
        if not cancel:
            return
        generation = live.ask.request.generation
        if live.shared or live.reader.shared:
            if not self._books.cancel(generation, None):
                self._scope.spawn(self._cancel_elsewhere(generation), "cancel")
        elif not live.reader.cancel() and live.place is not None:
            self._books.cancel_at(live.place, generation)

    async def _cancel_elsewhere(self, generation: str) -> None:
        """Another router's, or one from before this router's start."""
        try:
            await self._locator.cancel(generation, None if self._identity.mesh else self._identity.tenant)
        except StreamwayError as refused:
            _log.info("cancel_not_passed_on", generation=generation, reason=refused.name)

    def _settle(self) -> None:
        if self._live:
            return
        self._quiet.set()
        if self._finishing and not self._locates:
            self.outbox.end(self._expelled)


def where_from(request: router_pb2.ResumeRequest) -> tuple[str, Cursor]:
    """Generation and cursor of a resume. Raises InvalidArgument."""
    if not request.generation:
        raise InvalidArgument("generation", "must not be empty")
    try:
        return request.generation, Cursor.parse(request.cursor) if request.cursor else START
    except Malformed as wrong:
        raise InvalidArgument("cursor", wrong.message) from None


class _Relay:
    """A ReaderSink that passes events on under their generation's name."""

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
