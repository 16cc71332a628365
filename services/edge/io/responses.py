"""OpenAI's Responses API: `/v1/responses`, streamed, whole or in the background, and resumable from any edge."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Final

import msgspec
from aiohttp import web

from services.edge.core import kept_context, responses_request
from services.edge.core.responses_events import ResponseEvents
from services.edge.core.responses_request import Message, ResponsesBody
from services.edge.core.responses_state import ResponseState, generation_of, response_id
from services.edge.io.event_streams import EventStreams
from services.edge.io.gate import (
    RESTORE_ID,
    Caller,
    Gate,
    ask_cache,
    durability_of,
    idempotency_key_of,
    priority_of,
    request_id,
    restore_id_of,
)
from services.edge.io.http_errors import answer_response, json_response
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.responses_desk import Reading, ResponsesDesk
from services.edge.io.responses_reader import ResponseReader
from services.edge.io.responses_store import ResponseStore, StoredResponse
from services.edge.io.restores import Restorable, Restores
from services.edge.settings import EdgeSettings
from streamway import cachestatus
from streamway.affinity import session_key
from streamway.errors import (
    EventsExpired,
    GenerationNotFound,
    InvalidArgument,
    StoreUnavailable,
)
from streamway.runtime.ids import new_generation_id

_STREAM: Final = "responses_stream"
_CONTINUABLE: Final = frozenset({"completed", "incomplete"})


class ResponsesSurface:
    """The handlers. aiohttp cancels one when its client's connection is lost."""

    def __init__(
        self,
        gate: Gate,
        responses: ResponsesDesk,
        store: ResponseStore,
        streams: EventStreams,
        restores: Restores,
        metrics: EdgeMetrics,
        settings: EdgeSettings,
        max_message_bytes: int,
    ) -> None:
        self._gate = gate
        self._responses = responses
        self._store = store
        self._streams = streams
        self._restores = restores
        self._metrics = metrics
        self._hold_s = settings.hold_status_s
        self._most_silent_s = settings.heartbeat_s / 2
        self._by_address = settings.session_by_address
        self._max_message_bytes = max_message_bytes

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [
            web.post("/v1/responses", self.create),
            web.get("/v1/responses/{id}", self.retrieve),
            web.delete("/v1/responses/{id}", self.delete),
            web.post("/v1/responses/{id}/cancel", self.cancel),
        ]

    async def create(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/responses`."""
        caller = self._gate.admit(request)
        if kept_context.HEADER in request.headers:
            raise InvalidArgument(kept_context.HEADER, "here a conversation goes on by previous_response_id")
        if request.content_type != "application/json":
            # A page of another site can post text/plain without asking; this is what stops it.
            raise web.HTTPUnsupportedMediaType(text="send the request as 'Content-Type: application/json'")
        body = responses_request.parse(await request.read())
        tenant = caller.identity.tenant
        previous = await self._previous(body, tenant)
        messages = [*_conversation(previous), *responses_request.turns(body)]
        wanted = responses_request.to_request(body, messages, self._max_message_bytes)
        wanted.generation = new_generation_id()
        wanted.tenant = tenant
        wanted.session = self._session(caller, body, previous, messages)
        wanted.priority = priority_of(request)
        ask_cache(request, wanted)
        wanted.durability = durability_of(request)
        wanted.idempotency_key = idempotency_key_of(request)
        wanted.traceparent = caller.context.traceparent
        wanted.baggage = caller.context.baggage
        echo = responses_request.echo(body)
        if echo.store:
            try:
                await self._store.begin(wanted.generation, tenant, wanted.session, echo, messages)
            except StoreUnavailable:
                if echo.background:
                    raise
                # It is answered all the same, and says that it cannot be had again.
                echo = msgspec.structs.replace(echo, store=False)
        restorable: Restorable | None = None
        if echo.background:
            restorable = await self._restores.join(restore_id_of(request), tenant)
        reading = self._responses.open(wanted, echo, streaming=bool(body.stream))
        if restorable is not None:
            # It can be had on any other surface too.
            restorable.add(reading.generation)
            restorable.close()
            reading = replace(reading, restore_id=restorable.id)
        own = wanted.generation
        del wanted, messages, previous
        try:
            with self._gate.watching(caller, reading.generation):
                if body.stream:
                    return await self._stream(request, caller, reading)
                return await self._whole(caller, reading)
        finally:
            await self._settled(reading, own)

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/responses/{id}`, as it is now or, with `stream=true`, all that comes after `starting_after`."""
        caller = self._gate.admit(request)
        stored = await self._stored(request, caller)
        if not _flag(request, "stream"):
            if "starting_after" in request.query:
                raise InvalidArgument("starting_after", "only allowed when 'stream' is true")
            state = await self._responses.so_far(stored, caller.identity.tenant)
            return answer_response(state.object())
        after = _number(request, "starting_after")
        reading = self._responses.resume(stored, caller.identity.tenant, after)
        try:
            with self._gate.watching(caller, reading.generation):
                return await self._stream(request, caller, reading)
        except (EventsExpired, GenerationNotFound):
            if stored.outcome is None:
                raise
            return await self._from_outcome(request, caller, stored, after)
        finally:
            reading.generation.leave()

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/responses/{id}/cancel`. Idempotent."""
        caller = self._gate.admit(request)
        stored = await self._stored(request, caller)
        state = await self._responses.cancel(stored, caller.identity.tenant)
        return answer_response(state.object())

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """`DELETE /v1/responses/{id}`: with its request and its events; one that runs is cancelled."""
        caller = self._gate.admit(request)
        stored = await self._stored(request, caller)
        with contextlib.suppress(EventsExpired, GenerationNotFound):
            await self._responses.cancel(stored, caller.identity.tenant)
        await self._store.erase(stored.generation)
        return json_response({"id": response_id(stored.generation), "object": "response", "deleted": True})

    # --- Answering

    async def _stream(self, request: web.Request, caller: Caller, reading: Reading) -> web.StreamResponse:
        await reading.reader.status(self._hold_s, self._most_silent_s, resumed=reading.resumed)
        headers = _head(caller, reading)
        return await self._streams.send(request, _STREAM, reading.reader, reading.generation, headers)

    async def _whole(self, caller: Caller, reading: Reading) -> web.Response:
        reader = reading.reader
        background = reader.state.echo.background
        await asyncio.wait({reader.accepted if background else reader.done})
        if reader.failed is not None and not self._told_as_response(reader):
            raise reader.failed
        response = answer_response(reader.state.object())
        response.headers.update(_head(caller, reading))
        return response

    def _told_as_response(self, reader: ResponseReader) -> bool:
        """It ended badly, and its client reads that from the response: it was cancelled, or runs in the background."""
        state = reader.state
        return state.ended and (state.echo.background or state.status == "cancelled")

    async def _from_outcome(
        self, request: web.Request, caller: Caller, stored: StoredResponse, after: int
    ) -> web.StreamResponse:
        """The stream of a response whose events are gone, made from what is kept of it."""
        assert stored.outcome is not None, "asked only with one"
        state = ResponseState.ended_as(stored.generation, stored.echo, stored.outcome)
        data = ResponseEvents(state, after).whole()
        if data is None:
            raise EventsExpired(stored.generation)
        response = web.Response(body=data, content_type="text/event-stream")
        response.headers["x-request-id"] = request_id(request)
        response.headers["traceparent"] = caller.context.traceparent
        return response

    async def _settled(self, reading: Reading, own: str) -> None:
        """On every way out of `create`. `own`: the id the generation was begun with."""
        reader, generation = reading.reader, reading.generation
        refused = reader.failed is not None and not reader.state.position
        if reader.state.echo.store and (refused or reader.state.generation != own):
            # There is no such response, or it is an earlier one to which an idempotency key has led.
            with contextlib.suppress(StoreUnavailable):
                await self._store.forget(own)
        if generation.ended:
            return
        if reader.state.echo.background:
            self._responses.keep(reading)
        else:
            self._metrics.abnormal_closes += 1
            generation.leave()

    # --- What came before

    async def _stored(self, request: web.Request, caller: Caller) -> StoredResponse:
        generation = generation_of(request.match_info["id"])
        return await self._store.read(generation, caller.identity.tenant)

    async def _previous(self, body: ResponsesBody, tenant: str) -> tuple[StoredResponse, ResponseState] | None:
        """The response that this one follows, with its whole text. Raises InvalidArgument where it cannot be had."""
        id_ = body.previous_response_id
        if id_ is None:
            return None
        try:
            stored = await self._store.read(generation_of(id_), tenant)
            state = await self._responses.so_far(stored, tenant)
        except (GenerationNotFound, EventsExpired):
            raise InvalidArgument(
                "previous_response_id",
                f"there is no response {id_[:64]!r}, or it is no longer kept; send the conversation",
            ) from None
        if state.status not in _CONTINUABLE:
            raise InvalidArgument("previous_response_id", f"that response is {state.status}; it has no whole answer")
        return stored, state

    def _session(
        self,
        caller: Caller,
        body: ResponsesBody,
        previous: tuple[StoredResponse, ResponseState] | None,
        messages: list[Message],
    ) -> str:
        address = caller.address if self._by_address else ""
        named = body.prompt_cache_key or body.safety_identifier or body.user or ""
        earlier = previous[0].session if previous is not None else ""
        if key := session_key.choose(caller.session, "" if earlier else named, "", "", claim=caller.identity.session):
            return key
        if earlier:
            return earlier
        first = [("system", body.instructions)] if body.instructions else []
        turns = [*first, *((message.role, message.content) for message in messages)]
        return session_key.choose("", "", address, "") or session_key.of_prompt(
            caller.identity.tenant, body.model, turns
        )


def _head(caller: Caller, reading: Reading) -> dict[str, str]:
    """The headers of every answer about a response that is being read."""
    reader = reading.reader
    told = {
        "x-streamway-generation": reader.state.generation,
        "x-streamway-session": reading.generation.session,
        "traceparent": caller.context.traceparent,
        "x-streamway-worker": reader.told.worker,
        RESTORE_ID: reading.restore_id,
        **cachestatus.of_accepted(reader.told),
    }
    return {name: value for name, value in told.items() if value} | ({} if reading.resumed else reader.rate_limits)


def _conversation(previous: tuple[StoredResponse, ResponseState] | None) -> list[Message]:
    """The turns up to and with the response that this one follows; its instructions do not carry over."""
    if previous is None:
        return []
    stored, state = previous
    return [*stored.messages, Message("assistant", state.text)]


def _flag(request: web.Request, name: str) -> bool:
    text = request.query.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidArgument(name, f"{text[:20]!r} is neither 'true' nor 'false'")
    return text == "true"


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name)
    if text is None:
        return -1
    if not text.isdecimal() or len(text) > 18:
        raise InvalidArgument(name, f"{text[:20]!r} is not a sequence number")
    return int(text)
