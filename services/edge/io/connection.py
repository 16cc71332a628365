"""One WebSocket: many generations side by side, by the client's names for them. `lifetime.py` has how it lives and ends."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from aiohttp import WSMsgType, web

from services.edge.core import kept_context, ws_frames
from services.edge.core.commands import BadFrame, Cancel, Live, Name, Open, Restore, Resume
from services.edge.interfaces import Dialect
from services.edge.io.desk import Generation
from services.edge.io.frame_reader import FrameReader
from services.edge.io.gate import Caller
from services.edge.io.lifetime import SURFACE, Lifetime
from streamway.affinity import session_key
from streamway.errors import (
    DuplicateId,
    GenerationNotFound,
    StreamwayError,
    TooLarge,
    TooManyGenerations,
)
from streamway.journal.cursor import Cursor
from streamway.runtime.ids import new_generation_id

if TYPE_CHECKING:
    from services.edge.io.websocket import WebSocketSurface

# Generations of a `restore` that are resumed in one turn of the loop.
_TOGETHER: Final = 64


class Connection(Lifetime):
    """See the module."""

    __slots__ = ("_session", "_socket")

    def __init__(
        self,
        surface: WebSocketSurface,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport,
        dialect: Dialect,
        caller: Caller,
        session: str,
    ) -> None:
        super().__init__(surface, transport, dialect, caller)
        self._socket = socket
        self._session = session

    def greet(self, models: list[str]) -> None:
        """The first frame."""
        settings = self._surface.settings
        heartbeat_ms, grace_ms = int(settings.heartbeat_s * 1000), int(settings.resume_grace_s * 1000)
        self.outbox.put(self.dialect.hello(self._restorable.id, self._session, models, heartbeat_ms, grace_ms))

    async def receive(self, restore_id: str = "") -> None:
        """Works through what the client sends until the connection ends; begins with what `restore_id` had."""
        if restore_id:
            await self._restore(Restore(restore_id[:64], {}))
        socket = self._socket
        while True:
            message = await socket.receive()
            self._unanswered = 0
            kind = message.type
            if kind is WSMsgType.TEXT or kind is WSMsgType.BINARY:
                if not self._closing:
                    await self._message(message.data)
            elif kind is WSMsgType.PING:
                self.outbox.put(ws_frames.pong_frame(message.data))
            elif kind is not WSMsgType.PONG:
                # Closed by the client, by us, or by a frame that breaks the protocol; aiohttp has answered it.
                return

    async def _message(self, data: str | bytes) -> None:
        try:
            command = self.dialect.parse(data, int(time.time() * 1000))
        except BadFrame as bad:
            self._refuse(bad.error, bad.id)
            return
        if isinstance(command, Open):
            self._open(command)
        elif isinstance(command, Cancel):
            generation = self._live.get(command.id)
            if generation is None:
                self._refuse(GenerationNotFound(str(command.id)), command.id)
            else:
                generation.cancel()
        elif isinstance(command, Resume):
            self._resume(command.id, command.generation, command.after)
        elif isinstance(command, Restore):
            await self._restore(command)
        else:
            self.outbox.put(self.dialect.pong(command.t))

    def _open(self, command: Open) -> None:
        surface = self._surface
        request = command.request
        try:
            self._admit(command.id)
            if request.ByteSize() + 4096 > surface.max_message_bytes:
                raise TooLarge("the request", surface.max_message_bytes - 4096, "STREAMWAY_MAX_MESSAGE_BYTES")
            context = surface.context(self._caller)
            request.generation = new_generation_id()
            request.tenant = self._caller.identity.tenant
            kept_context.name(request, request.session or self._caller.session)
            request.session = session_key.of_id(request.session) if request.session else self._session
            request.traceparent = context.traceparent
            request.baggage = context.baggage
            reader = FrameReader(self, command.id, context.traceparent)
            self._read(command.id, surface.desk.open(request, reader, SURFACE), new=True)
        except StreamwayError as refusal:
            self._refuse(refusal, command.id)

    def _resume(self, name: Name, generation: str, after: Cursor) -> None:
        try:
            self._admit(name)
            self._surface.context(self._caller)
            reader = FrameReader(self, name, "")
            tenant = self._caller.identity.tenant
            self._read(name, self._surface.desk.resume(generation, tenant, after, reader, SURFACE), new=False)
        except StreamwayError as refusal:
            self._refuse(refusal, name)

    async def _restore(self, command: Restore) -> None:
        """Resumes everything another connection had; what this one reads already is left alone."""
        try:
            stored = await self._surface.restores.read(command.restore_id, self._caller.identity.tenant)
        except StreamwayError as refusal:
            self._refuse(refusal)
            return
        if self._closing:
            return
        reading = {generation.id for generation in self._live.values()}
        taken: set[Name] = set(self._live)
        live: list[Live] = []
        for each in stored:
            if each.generation in reading:
                continue
            name = self.dialect.name_for(each.name, each.generation, len(live))
            if name in taken:
                name = self.dialect.name_for("", each.generation, len(live))
            taken.add(name)
            live.append(Live(name, each.generation, command.after.get(each.generation, each.cursor)))
        self.outbox.put(self.dialect.restored(command.restore_id, live))
        for number, found in enumerate(live, 1):
            self._resume(found.id, found.generation, found.cursor)
            if number % _TOGETHER == 0 and not await self._still_open():
                return

    async def _still_open(self) -> bool:
        """Lets others go on: the first of a thousand must not wait until the last has been asked for."""
        await asyncio.sleep(0)
        return not self._closing

    def _admit(self, name: Name) -> None:
        """Raises what forbids one more generation of this name."""
        limit = self._surface.settings.max_generations
        self.check()
        if name in self._live:
            raise DuplicateId(str(name))
        if len(self._live) >= limit:
            raise TooManyGenerations("connection", limit)

    def _read(self, name: Name, generation: Generation, *, new: bool) -> None:
        self._live[name] = generation
        self.life.used(self._surface.now(), new=new)
        self._restorable.add(generation, str(name))

    def _refuse(self, error: StreamwayError, name: Name = "") -> None:
        self.outbox.put(self.dialect.refused(error, name))
