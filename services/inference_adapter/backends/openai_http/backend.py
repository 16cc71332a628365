"""Any OpenAI-compatible server as an engine, over TCP or a unix socket."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog
import tenacity

from services.inference_adapter.backends.openai_http import metrics
from services.inference_adapter.backends.openai_http.address import parse
from services.inference_adapter.backends.openai_http.body import NOTHING_OURS, OurFields, build
from services.inference_adapter.backends.openai_http.discovery import Models, discover, read_models
from services.inference_adapter.backends.openai_http.exchanges import Document, StreamCall
from services.inference_adapter.backends.openai_http.pool import ConnectionPool
from services.inference_adapter.backends.openai_http.profiles import LLAMACPP, OPENAI, Profile
from services.inference_adapter.backends.openai_http.resting import Rest
from services.inference_adapter.backends.openai_http.sweep import Sweep
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.backends.probing import Probing
from services.inference_adapter.core.capabilities import Capabilities
from services.inference_adapter.core.continuation import made_tokens
from services.inference_adapter.interfaces import EngineInfo, EngineLoad, EngineModel, EngineSink
from streamway.errors import EngineFailed, StreamwayError
from streamway.journal.answer import ChoiceSoFar
from streamway.models.abilities import Ability
from streamway.runtime.process import StartError
from streamway.runtime.tasks import TaskScope
from streamway.telemetry.context import current
from streamway.v1 import common_pb2

DEFAULT_SLOTS: Final = 64
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# Members as `streamway.config.baggage` leaves them.
_BAGGAGE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,4096}")
_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_OURS: Final = frozenset({Ability.PRIORITY, Ability.CACHE_SALT})
_log = structlog.get_logger("adapter")


class OpenAIHTTPBackend:
    """Drives a server that speaks OpenAI's chat completions. `worker` names it in errors; `sweep` reads its answers by the clock
    while the process is busy."""

    def __init__(
        self, options: BackendOptions, worker: str, *, kind: str = "openai_http", sweep: Sweep | None = None
    ) -> None:
        self._options, self._worker, self._kind = options, worker, kind
        self._expected = LLAMACPP if kind == "llamacpp" else None
        self._profile: Profile = self._expected or OPENAI
        self._address = parse(options.url)
        self._pool = ConnectionPool(
            self._address,
            most_idle=0 if options.keep_alive is False else options.kept_connections,
            connect_timeout_s=options.connect_timeout_s,
            idle_s=options.kept_s,
            sweep=sweep,
        )
        self._scope = TaskScope("engine")
        self._calls: set[StreamCall] = set()
        self._info: EngineInfo | None = None
        self._engine_names: dict[str, str] = {}
        self._has_metrics = False
        self._rest: Rest | None = None
        token = options.engine_token.get_secret_value() if options.engine_token is not None else ""
        self._headers = (
            f"Host: {self._address.authority}\r\n"
            + (f"Authorization: Bearer {token}\r\n" if token else "")
            + ("" if options.keep_alive is not False else "Connection: close\r\n")
        )

    async def start(self) -> None:
        """Waits until the engine lists its models. Raises StartError when it does not in time, or refuses us."""
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_delay(self._options.start_timeout_s),
            wait=tenacity.wait_exponential(multiplier=0.1, max=2.0) + tenacity.wait_random(0, 0.1),
            retry=tenacity.retry_if_exception_type(EngineFailed),
            before_sleep=self._log_waiting,
            reraise=True,
        )
        try:
            models: Models = await retrying(self._first_models)
        except EngineFailed as problem:
            await self.close()
            raise StartError(
                f"the engine at {self._address} does not answer: {problem.message}; is it running?"
            ) from None
        self._profile, known, self._has_metrics = await discover(self.get, models, self._expected)
        self._info = self._describe(models.all, known)
        await self._may_rest()
        if self._options.probe and self._profile.tried:
            await self._probe(known)

    async def _may_rest(self) -> None:
        """Where it is asked for, and the engine can."""
        options, rest = self._options, self._profile.rest
        if not options.idle_unload_s or rest is None:
            return
        clock = asyncio.get_running_loop().time
        wake_s = options.start_timeout_s
        self._rest = Rest(self._worker, self.get, self.post, rest, options.idle_unload_s, wake_s, clock)
        try:
            await self._rest.start()
        except EngineFailed as problem:
            await self.close()
            raise StartError(f"the engine at {self._address} sleeps and does not wake: {problem.message}") from None

    async def _probe(self, known: Capabilities) -> None:
        """Asks the engine what it can do."""
        assert self._info is not None
        priority = self._profile.priority[0] if self._profile.priority else ""
        probing = Probing(self.call, self._info.models[0].name, known, priority)
        found = await probing.run(self._options.probe_timeout_s)
        self._info = replace(self._info, capabilities=found)

    def _log_waiting(self, state: tenacity.RetryCallState) -> None:
        problem = state.outcome.exception() if state.outcome else None
        _log.info(
            "engine_waiting",
            address=str(self._address),
            waited_s=round(state.seconds_since_start or 0, 1),
            problem=getattr(problem, "message", ""),
        )

    def _describe(self, models: tuple[EngineModel, ...], known: Capabilities) -> EngineInfo:
        wanted = self._options.model_name
        if wanted and wanted not in {model.name for model in models}:
            if len(models) > 1:
                names = ", ".join(model.name for model in models)
                raise StartError(
                    f"the engine at {self._address} serves {names}, but the setting model_name is {wanted!r}"
                )
            self._engine_names[wanted] = models[0].name
        if wanted:
            listed = next((m for m in models if m.name == wanted), models[0])
            models = (EngineModel(wanted, self._options.context_tokens or listed.context_tokens),)
        elif self._options.context_tokens:
            models = tuple(EngineModel(model.name, self._options.context_tokens) for model in models)
        slots = self._options.slots
        return EngineInfo(self._kind, str(self._address), models, slots or DEFAULT_SLOTS, 0, not slots, known)

    def info(self) -> EngineInfo:
        """What the engine is; valid after `start`."""
        assert self._info is not None, "start() comes first"
        return self._info

    def call(
        self,
        request: common_pb2.GenerationRequest,
        sink: EngineSink,
        so_far: ChoiceSoFar | None = None,
        *,
        fields: Mapping[str, int] | None = None,
        on_over: Callable[[], None] | None = None,
    ) -> StreamCall:
        """Starts one streamed chat completion. `fields` stand in place of what a client gave for them; `on_over` is called once
        when the call has ended, however it did."""
        model = self._engine_names.get(request.model, request.model)
        problem: StreamwayError | None = None
        message = b""
        try:
            body = build(
                request,
                model,
                keep_own_fields=self._options.pass_streamway_fields,
                so_far=so_far,
                continue_by=self._profile.continue_by,
                ours=self._ours(request, fields),
            )
            message = self._post(request, body)
        except StreamwayError as error:
            problem = error
        made = made_tokens(so_far) if so_far is not None else 0

        def over(ended: StreamCall) -> None:
            self._calls.discard(ended)
            if self._rest is not None:
                self._rest.worked()
            if on_over is not None:
                on_over()

        call = StreamCall(self._pool, sink, message, self._worker, over, made)
        self._calls.add(call)
        if problem is not None:
            asyncio.get_running_loop().call_soon(call.fail, problem)
        elif self._rest is None or self._rest.awake:
            call.begin(self._scope.spawn)
        else:
            self._scope.spawn(self._begin_awake(self._rest, call), "engine-wake")
        return call

    async def _begin_awake(self, rest: Rest, call: StreamCall) -> None:
        try:
            await rest.wake()
        except EngineFailed as problem:
            call.fail(problem)
        else:
            if not call.over:
                call.begin(self._scope.spawn)

    def _ours(self, request: common_pb2.GenerationRequest, given: Mapping[str, int] | None) -> OurFields:
        can = self._info.capabilities.can if self._info is not None else frozenset()
        if not can & _OURS:
            return OurFields(given, "", "") if given else NOTHING_OURS
        fields = dict(given or {})
        if self._profile.priority is not None and Ability.PRIORITY in can:
            name, sign = self._profile.priority
            fields[name] = sign * request.priority
        salted = Ability.CACHE_SALT in can and request.tenant
        return OurFields(fields, self._profile.cache_salt if salted else "", request.tenant)

    def _post(self, request: common_pb2.GenerationRequest, body: bytes) -> bytes:
        head = [f"POST {self._address.prefix}/v1/chat/completions HTTP/1.1\r\n", self._headers]
        head.append("Content-Type: application/json\r\nAccept: text/event-stream\r\n")
        # All came from outside: only what cannot break out of a header goes into one.
        if _ID.fullmatch(request.generation):
            head.append(f"X-Request-Id: {request.generation}\r\n")
        here = current.get()
        traceparent = here.traceparent if here is not None else request.traceparent
        if _TRACEPARENT.fullmatch(traceparent):
            head.append(f"traceparent: {traceparent}\r\n")
        if request.baggage and _BAGGAGE.fullmatch(request.baggage):
            head.append(f"baggage: {request.baggage}\r\n")
        head.append(f"Content-Length: {len(body)}\r\n\r\n")
        return "".join(head).encode("latin-1") + body

    async def load(self) -> EngineLoad:
        """From the engine's metrics where it has some we know, else our own count and a health check by its model list."""
        load, rest = await self._load(), self._rest
        if rest is None:
            return load
        if rest.due and not (self.running or load.running or load.waiting):
            self._scope.spawn(rest.sleep(lambda: self.running > 0), "engine-sleep")
        return replace(load, asleep=rest.asleep)

    async def _load(self) -> EngineLoad:
        if self._has_metrics:
            status, page = await self.get("/metrics")
            said = metrics.read(page) if status == 200 else None
            if said is None:
                raise EngineFailed(self._worker, f"its metrics are gone (status {status})")
            return said
        await self.list_models()
        return EngineLoad(self.running, 0)

    @property
    def running(self) -> int:
        """Calls of ours under way."""
        return len(self._calls)

    async def park(self) -> None:
        """Nothing of it can be used elsewhere."""

    async def failed(self) -> None:
        """Never returns: the engine is somebody else's process."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Aborts every call and closes every connection."""
        for call in list(self._calls):
            call.abort()
        await self._scope.close()
        self._pool.close()

    async def list_models(self) -> Models:
        """GET /v1/models. Raises EngineFailed."""
        return read_models(*await self.get("/v1/models"), self._worker)

    async def _first_models(self) -> Models:
        status, body = await self.get("/v1/models")
        if status in {401, 403}:
            raise StartError(f"the engine at {self._address} refuses our credentials; check the setting engine_token")
        return read_models(status, body, self._worker)

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a small document. Raises EngineFailed."""
        return await self._ask(
            f"GET {path}", f"GET {self._address.prefix}{path} HTTP/1.1\r\n{self._headers}\r\n".encode("latin-1")
        )

    async def post(self, path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """The same of a question with a JSON body, within a time of its own."""
        head = f"POST {self._address.prefix}{path} HTTP/1.1\r\n{self._headers}Content-Type: application/json\r\n"
        return await self._ask(
            f"POST {path}", f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body, timeout_s
        )

    async def _ask(self, what: str, request: bytes, timeout_s: float | None = None) -> tuple[int, bytes]:
        timeout_s = timeout_s or self._options.health_timeout_s
        document = Document(self._worker)
        connection = None
        try:
            async with asyncio.timeout(timeout_s):
                # A fresh one: a health check must not fail because an idle connection was just closed. And for us alone: we close
                # it below, and a call that had taken it from the pool in the meantime would never hear of that.
                connection = await self._pool.connect(keep=False)
                connection.send(document, request)
                return await document.result
        except TimeoutError:
            raise EngineFailed(self._worker, f"no answer to {what} in {timeout_s:g} s") from None
        except OSError as problem:
            raise EngineFailed(
                self._worker, f"no connection to it: {problem.strerror or type(problem).__name__}"
            ) from None
        finally:
            if connection is not None:
                connection.abort()
