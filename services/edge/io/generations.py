"""`/v1/generations`: generations that need no connection of their own, read by server-sent events or by long polls.

POST   /v1/generations                 202: it runs, whether somebody reads it or not
GET    /v1/generations                 what the connection of an X-Session-Restore-ID had
GET    /v1/generations/{id}/events     from a cursor on: a stream with `Accept: text/event-stream`, else one long poll
DELETE /v1/generations/{id}            stops it
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from aiohttp import web

from services.edge.core import kept_context, rate_limits, ws_protocol
from services.edge.core.commands import cursor_of
from services.edge.io.desk import Desk
from services.edge.io.event_readers import EventStreamReader, PollReader
from services.edge.io.event_streams import EventStreams
from services.edge.io.gate import (
    RESTORE_ID,
    Caller,
    Gate,
    ask_cache,
    durability_of,
    idempotency_key_of,
    priority_of,
    restore_id_of,
)
from services.edge.io.http_errors import json_response
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.restores import Restores
from services.edge.settings import EdgeSettings
from streamway.affinity import session_key
from streamway.errors import GoingAway, InvalidArgument, StreamwayError, TooLarge, from_status
from streamway.journal.cursor import START, Cursor
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2
from streamway.v1.router_pb2 import GenerationState

_SSE: Final = "sse"
_POLL: Final = "long_poll"
_BACKGROUND: Final = "background"
_MOST_WAIT_S: Final = 60.0
# What comes within this time after the first event is in the same answer.
_LINGER_S: Final = 0.05
_DURABILITY: Final = {common_pb2.DURABILITY_RELAXED: "relaxed", common_pb2.DURABILITY_STRICT: "strict"}


class GenerationsSurface:
    """See the module."""

    def __init__(
        self,
        gate: Gate,
        desk: Desk,
        restores: Restores,
        streams: EventStreams,
        metrics: EdgeMetrics,
        settings: EdgeSettings,
        max_message_bytes: int,
    ) -> None:
        self._gate = gate
        self._desk = desk
        self._restores = restores
        self._streams = streams
        self._metrics = metrics
        self._most_silent_s = settings.heartbeat_s / 2
        self._poll_wait_s = settings.poll_wait_s
        self._most_bytes = settings.slow_bytes
        self._by_address = settings.session_by_address
        self._max_message_bytes = max_message_bytes

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Starts one in the background."""
        caller = self._gate.admit(request)
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send the request as 'Content-Type: application/json'")
        if self._desk.refusing:
            raise GoingAway("edge")
        wanted = self._wanted(request, caller, await request.read())
        restorable = await self._restores.join(restore_id_of(request), caller.identity.tenant)
        reader = _AcceptedReader()
        generation = self._desk.open(wanted, reader, _BACKGROUND, follow=False)
        restorable.add(generation)
        try:
            accepted = await reader.accepted
        finally:
            restorable.close()
            generation.leave()
        where = f"/v1/generations/{generation.id}/events"
        told = {
            "generation": generation.id,
            "events_url": where,
            "cursor": accepted.cursor or "0-1",
            "durability": _DURABILITY.get(accepted.durability, "off"),
            "session": accepted.session or generation.session,
        }
        headers = {"Location": where, RESTORE_ID: restorable.id, "traceparent": caller.context.traceparent}
        response = json_response(told, 202)
        response.headers.update(headers | rate_limits.of_accepted(accepted))
        return response

    async def list(self, request: web.Request) -> web.StreamResponse:
        """What a connection had, with the cursors that were sent last."""
        caller = self._gate.admit(request)
        restore_id = restore_id_of(request)
        if not restore_id:
            raise InvalidArgument(RESTORE_ID, "send the restore id of the connection whose generations you want back")
        stored = await self._restores.read(restore_id, caller.identity.tenant)
        rows = [
            {
                "generation": each.generation,
                "cursor": str(each.cursor),
                "events_url": f"/v1/generations/{each.generation}/events",
            }
            for each in stored
        ]
        response = json_response({"restore_id": restore_id, "generations": rows})
        response.headers[RESTORE_ID] = restore_id
        return response

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Stops one. Idempotent: the answer is the state it had."""
        caller = self._gate.admit(request)
        id_ = request.match_info["id"]
        state = await self._desk.cancel(id_, caller.identity.tenant)
        name = GenerationState.Name(state).removeprefix("GENERATION_STATE_").lower()
        return json_response({"generation": id_, "state": name})

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Reads one from a cursor on."""
        caller = self._gate.admit(request)
        id_ = request.match_info["id"]
        after = await self._after(request, caller, id_)
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await self._stream(request, caller, id_, after)
        return await self._poll(request, caller, id_, after)

    async def _poll(self, request: web.Request, caller: Caller, id_: str, after: Cursor) -> web.StreamResponse:
        wait_s = self._wait_s(request)
        tenant = caller.identity.tenant
        restorable = await self._restores.join(restore_id_of(request), tenant)
        reader = PollReader(id_, after, self._most_bytes)
        generation = self._desk.resume(id_, tenant, after, reader, _POLL)
        self._metrics.connections.labels(_POLL).inc()
        try:
            with self._gate.watching(caller, generation):
                await reader.collect(wait_s, _LINGER_S)
            restorable.add(generation)
        except asyncio.CancelledError:
            self._metrics.abnormal_closes += 1
            raise
        finally:
            self._metrics.connections.labels(_POLL).dec()
            restorable.close()
            generation.leave()
        response = web.Response(body=reader.body(), content_type="application/json")
        response.headers["Cache-Control"] = "no-store"
        response.headers[RESTORE_ID] = restorable.id
        return response

    async def _stream(self, request: web.Request, caller: Caller, id_: str, after: Cursor) -> web.StreamResponse:
        tenant = caller.identity.tenant
        restorable = await self._restores.join(restore_id_of(request), tenant)
        reader = EventStreamReader(id_, after, self._most_bytes)
        generation = reader.pausing = self._desk.resume(id_, tenant, after, reader, _SSE)
        try:
            with self._gate.watching(caller, generation):
                # An error before anything was said is raised here and becomes an HTTP status.
                await reader.begun(self._most_silent_s)
                restorable.add(generation)
                if reader.nothing_new and "Last-Event-ID" in request.headers:
                    # Browsers reconnect after each end, until they hear this.
                    return web.Response(status=204)
                headers = {"x-streamway-generation": id_, RESTORE_ID: restorable.id}
                return await self._streams.send(request, _SSE, reader, generation, headers)
        finally:
            reader.pausing = None
            restorable.close()
            if not generation.ended:
                self._metrics.abnormal_closes += 1
                generation.leave()

    async def _after(self, request: web.Request, caller: Caller, id_: str) -> Cursor:
        """Where the client stands: what its browser remembers, what it says, or what was sent to its connection last."""
        for field, text in (
            ("Last-Event-ID", request.headers.get("Last-Event-ID", "")),
            ("after", request.query.get("after", "")),
        ):
            if text:
                return cursor_of(field, text)
        if restore_id := restore_id_of(request):
            for stored in await self._restores.read(restore_id, caller.identity.tenant):
                if stored.generation == id_:
                    return stored.cursor
        return START

    def _wait_s(self, request: web.Request) -> float:
        text = request.query.get("wait", "")
        try:
            wait_s = float(text) if text else self._poll_wait_s
        except ValueError:
            wait_s = -1.0
        if not 0 <= wait_s <= _MOST_WAIT_S:
            raise InvalidArgument("wait", f"{text[:20]!r} is no number of seconds from 0 to {_MOST_WAIT_S:.0f}")
        return wait_s

    def _wanted(self, request: web.Request, caller: Caller, body: bytes) -> common_pb2.GenerationRequest:
        """What the body says, and the headers where it is silent."""
        wanted = ws_protocol.to_request(ws_protocol.parse_body(body), int(time.time() * 1000))
        if wanted.ByteSize() + 4096 > self._max_message_bytes:
            raise TooLarge("the request", self._max_message_bytes - 4096, "STREAMWAY_MAX_MESSAGE_BYTES")
        tenant = caller.identity.tenant
        wanted.generation = new_generation_id()
        wanted.tenant = tenant
        wanted.traceparent = caller.context.traceparent
        wanted.baggage = caller.context.baggage
        wanted.priority = wanted.priority or priority_of(request)
        ask_cache(request, wanted)
        wanted.durability = wanted.durability or durability_of(request)
        wanted.idempotency_key = wanted.idempotency_key or idempotency_key_of(request)
        if request.headers.get(kept_context.HEADER) and not wanted.HasField("context"):
            kept_context.by_header(wanted, request.headers[kept_context.HEADER], wanted.session or caller.session)
        kept_context.name(wanted, wanted.session or caller.session)
        address = caller.address if self._by_address else ""
        key = session_key.choose(wanted.session or caller.session, "", address, "", claim=caller.identity.session)
        texts = [(message.role, message.content) for message in wanted.messages]
        wanted.session = key or session_key.of_prompt(tenant, wanted.model, texts)
        return wanted


class _AcceptedReader:
    """Waits for a generation to be accepted, or refused."""

    def __init__(self) -> None:
        self.accepted: asyncio.Future[common_pb2.Accepted] = asyncio.get_running_loop().create_future()

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The first event decides."""
        if self.accepted.done():
            return
        if kind == "accepted":
            self.accepted.set_result(event.accepted)
        elif kind == "error":
            problem: StreamwayError = from_status(event.error.status)
            self.accepted.set_exception(problem)
