"""`POST /v1/chat/completions`: as a stream of server-sent events, and as one answer."""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web

from services.edge.core import kept_context, openai_request, rate_limits
from services.edge.core.openai_chunks import ChunkEncoder
from services.edge.core.openai_completion import CompletionBuilder
from services.edge.core.openai_request import ChatBody
from services.edge.io.chat_readers import AnswerReader, StreamReader
from services.edge.io.desk import Desk, Generation
from services.edge.io.event_streams import EventStreams
from services.edge.io.gate import (
    RESTORE_ID,
    Caller,
    Gate,
    ask_cache,
    durability_of,
    idempotency_key_of,
    on_disconnect_of,
    priority_of,
    request_id,
    restore_id_of,
)
from services.edge.io.http_errors import answer_response
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.restores import Restorable, Restores
from services.edge.settings import EdgeSettings
from streamway import cachestatus
from streamway.affinity import session_key
from streamway.errors import GoingAway
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2

_STREAM: Final = "openai_stream"
_WHOLE: Final = "openai"


class ChatSurface:
    """OpenAI's chat completions."""

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
        self._hold_s = settings.hold_status_s
        self._most_silent_s = settings.heartbeat_s / 2
        self._by_address = settings.session_by_address
        self._max_message_bytes = max_message_bytes

    async def post(self, request: web.Request) -> web.StreamResponse:
        """The handler. aiohttp cancels it when the client's connection is lost."""
        caller = self._gate.admit(request)
        if request.content_type != "application/json":
            # A page of another site can post text/plain without asking; this is what stops it.
            raise web.HTTPUnsupportedMediaType(text="send the request as 'Content-Type: application/json'")
        if self._desk.refusing:
            raise GoingAway("edge")
        body = await request.read()
        chat = openai_request.parse(body)
        wanted = openai_request.to_request(chat, body, self._max_message_bytes)
        del body
        wanted.generation = new_generation_id()
        wanted.tenant = caller.identity.tenant
        wanted.session = self._session(caller, chat)
        wanted.priority = priority_of(request)
        ask_cache(request, wanted)
        wanted.durability = durability_of(request)
        wanted.on_disconnect = on_disconnect_of(request, "cancel")
        wanted.idempotency_key = idempotency_key_of(request)
        kept_context.by_header(wanted, request.headers.get(kept_context.HEADER, ""), caller.session)
        wanted.traceparent = caller.context.traceparent
        wanted.baggage = caller.context.baggage
        if chat.stream:
            return await self._stream(request, caller, chat, wanted)
        return await self._whole(request, caller, chat, wanted)

    async def _whole(
        self, request: web.Request, caller: Caller, chat: ChatBody, wanted: common_pb2.GenerationRequest
    ) -> web.StreamResponse:
        builder = CompletionBuilder(wanted.generation, wanted.model, int(time.time()), chat.choices)
        reader = AnswerReader(builder)
        generation = self._desk.open(wanted, reader, _WHOLE)
        del wanted, chat
        self._metrics.connections.labels(_WHOLE).inc()
        try:
            with self._gate.watching(caller, generation):
                completion = await reader.result
            response = answer_response(completion)
            response.headers.update(_head(caller, generation, reader.accepted))
            return response
        finally:
            self._metrics.connections.labels(_WHOLE).dec()
            self._done(generation)

    async def _stream(
        self, request: web.Request, caller: Caller, chat: ChatBody, wanted: common_pb2.GenerationRequest
    ) -> web.StreamResponse:
        encoder = ChunkEncoder(
            wanted.generation, wanted.model, int(time.time()), chat.choices, include_usage=chat.include_usage
        )
        restorable: Restorable | None = None
        if wanted.on_disconnect == common_pb2.ON_DISCONNECT_GRACE:
            restorable = await self._restores.join(restore_id_of(request), caller.identity.tenant)
        reader = StreamReader(encoder, request_id(request))
        generation = self._desk.open(wanted, reader, _STREAM)
        del wanted, chat
        if restorable is not None:
            restorable.add(generation)
        try:
            with self._gate.watching(caller, generation):
                # An error before anything was sent is raised here and becomes an HTTP status.
                await reader.begun(self._hold_s, self._most_silent_s)
                headers = _head(caller, generation, reader.accepted)
                if restorable is not None:
                    headers[RESTORE_ID] = restorable.id
                return await self._streams.send(request, _STREAM, reader, generation, headers)
        finally:
            if restorable is not None:
                restorable.close()
            self._done(generation)

    def _done(self, generation: Generation) -> None:
        """On every way out; a generation that has not ended has lost its client."""
        if not generation.ended:
            self._metrics.abnormal_closes += 1
            generation.leave()

    def _session(self, caller: Caller, chat: ChatBody) -> str:
        address = caller.address if self._by_address else ""
        named = chat.prompt_cache_key or chat.user or ""
        key = session_key.choose(caller.session, named, address, "", claim=caller.identity.session)
        return key or session_key.of_prompt(caller.identity.tenant, chat.model, chat.texts())


def _head(caller: Caller, generation: Generation, accepted: common_pb2.Accepted | None) -> dict[str, str]:
    """The headers of every answer."""
    headers = {
        "x-streamway-generation": generation.id,
        "x-streamway-session": generation.session,
        "traceparent": caller.context.traceparent,
    }
    if accepted is not None:
        if accepted.worker:
            headers["x-streamway-worker"] = accepted.worker
        headers |= cachestatus.of_accepted(accepted)
        if accepted.HasField("lowered_priority"):
            headers["x-streamway-priority"] = str(accepted.lowered_priority)
        headers |= rate_limits.of_accepted(accepted)
    return headers
