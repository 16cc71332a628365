"""`POST /v1/chat/completions`: as a stream of server-sent events, and as one answer."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog
from aiohttp import HttpVersion11, web

from services.edge.core import openai_request
from services.edge.core.openai_chunks import ChunkEncoder
from services.edge.core.openai_completion import CompletionBuilder
from services.edge.core.openai_request import ChatBody
from services.edge.io.chat_readers import AnswerReader, StreamReader
from services.edge.io.desk import Desk, Generation
from services.edge.io.gate import (
    RESTORE_ID,
    Caller,
    Gate,
    cache_policy_of,
    durability_of,
    idempotency_key_of,
    on_disconnect_of,
    priority_of,
    request_id,
    restore_id_of,
)
from services.edge.io.heartbeats import HeartbeatWheel
from services.edge.io.http_errors import json_response
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import ChunkedOutbox, Flusher, Outbox
from services.edge.io.restores import Restorable, Restores
from services.edge.settings import EdgeSettings
from streamway.affinity import session_key
from streamway.errors import GoingAway, SlowConsumer
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2

_log = structlog.get_logger("edge")

_STREAM: Final = "openai_stream"
_WHOLE: Final = "openai"


class ChatSurface:
    """OpenAI's chat completions."""

    def __init__(
        self,
        gate: Gate,
        desk: Desk,
        restores: Restores,
        flusher: Flusher,
        wheel: HeartbeatWheel,
        metrics: EdgeMetrics,
        settings: EdgeSettings,
        max_message_bytes: int,
    ) -> None:
        self._gate = gate
        self._desk = desk
        self._restores = restores
        self._flusher = flusher
        self._wheel = wheel
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
        wanted.cache = cache_policy_of(request)
        wanted.durability = durability_of(request)
        wanted.on_disconnect = on_disconnect_of(request, "cancel")
        wanted.idempotency_key = idempotency_key_of(request)
        wanted.traceparent = caller.context.traceparent
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
            completion = await reader.result
            response = json_response(completion)
            self._head(response, caller, generation, reader.accepted)
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
        self._metrics.connections.labels(_STREAM).inc()
        outbox: Outbox | None = None
        if restorable is not None:
            restorable.add(generation)
        try:
            # An error before anything was sent is raised here and becomes an HTTP status.
            await reader.begun(self._hold_s, self._most_silent_s)
            response = web.StreamResponse()
            response.content_type = "text/event-stream"
            response.headers["Cache-Control"] = "no-cache"
            response.headers["X-Accel-Buffering"] = "no"
            response.headers["x-request-id"] = request_id(request)
            self._head(response, caller, generation, reader.accepted)
            if restorable is not None:
                response.headers[RESTORE_ID] = restorable.id
            chunked = request.version >= HttpVersion11
            if chunked:
                response.enable_chunked_encoding()
            await response.prepare(request)
            transport = request.transport
            if transport is None:
                raise ConnectionResetError
            outbox = self._outbox(transport, generation, chunked=chunked)
            reader.send_to(outbox)
            self._wheel.add(reader)
            await reader.done
            outbox.flush()
            self._wheel.remove(reader)
            if self._desk.draining:
                response.force_close()
            await response.write_eof()
            return response
        finally:
            self._wheel.remove(reader)
            if outbox is not None:
                outbox.close()
            self._metrics.connections.labels(_STREAM).dec()
            if restorable is not None:
                restorable.close()
            self._done(generation)

    def _outbox(self, transport: asyncio.Transport, generation: Generation, *, chunked: bool) -> Outbox:
        def cut(error: SlowConsumer) -> None:
            _log.warning("slow_consumer", surface=_STREAM, problem=error.message)
            transport.abort()

        kind = ChunkedOutbox if chunked else Outbox
        return kind(transport, self._flusher, _STREAM, cut, generation)

    def _done(self, generation: Generation) -> None:
        """On every way out; a generation that has not ended has lost its client."""
        if not generation.ended:
            self._metrics.abnormal_closes += 1
            generation.leave()

    def _session(self, caller: Caller, chat: ChatBody) -> str:
        address = caller.address if self._by_address else ""
        key = session_key.choose(caller.session, chat.prompt_cache_key or chat.user or "", address, "")
        return key or session_key.of_prompt(caller.identity.tenant, chat.model, chat.texts())

    def _head(
        self,
        response: web.StreamResponse,
        caller: Caller,
        generation: Generation,
        accepted: common_pb2.Accepted | None,
    ) -> None:
        headers = response.headers
        headers["x-streamway-generation"] = generation.id
        headers["x-streamway-session"] = generation.session
        headers["traceparent"] = caller.context.traceparent
        if accepted is not None:
            if accepted.worker:
                headers["x-streamway-worker"] = accepted.worker
            if accepted.cache:
                headers["x-streamway-cache"] = accepted.cache
