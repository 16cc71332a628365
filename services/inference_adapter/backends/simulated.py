"""The simulated engine inside the adapter's own process: no model, no HTTP, the same behaviour as one."""

from __future__ import annotations

import asyncio
import codecs

import msgspec

from services.inference_adapter.backends.openai_http.body import build
from services.inference_adapter.backends.openai_http.profiles import SIMULATED
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.core.capabilities import Capabilities
from services.inference_adapter.interfaces import EngineInfo, EngineLoad, EngineModel, EngineSink
from streamway.errors import ContextLengthExceeded, EngineFailed, EngineOverloaded, EngineRejected, StreamwayError
from streamway.journal.answer import ChoiceSoFar
from streamway.simulation import words
from streamway.simulation.driver import EngineDriver
from streamway.simulation.engine import Begun, Broken, Ended, Event, SimulatedEngine
from streamway.simulation.request import Refused, continued, read
from streamway.simulation.sequence import Piece, SimulatedCall
from streamway.v1 import common_pb2

_encode = msgspec.json.Encoder().encode
_CAPABILITIES = Capabilities(SIMULATED.can, SIMULATED.cannot, SIMULATED.name)


class SimulatedBackend:
    """Drives a `SimulatedEngine` on the event loop. `worker` names it in errors."""

    def __init__(self, options: BackendOptions, worker: str) -> None:
        settings = options.simulation
        given = {"model": options.model_name, "slots": options.slots, "context_tokens": options.context_tokens}
        self._settings = settings.model_copy(update={name: value for name, value in given.items() if value})
        self._worker = worker
        self._engine = SimulatedEngine(self._settings)
        self._driver: EngineDriver | None = None
        self._calls: set[InProcessCall] = set()

    async def start(self) -> None:
        """Ready at once."""
        self._driver = EngineDriver(self._engine, _deliver)

    def info(self) -> EngineInfo:
        """What the engine is."""
        model = EngineModel(self._settings.model, self._settings.context_tokens)
        return EngineInfo("simulated", "", (model,), self._settings.slots, capabilities=_CAPABILITIES)

    def call(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> InProcessCall:
        """Gives the engine one call. Its text is a function of the prompt, so one that goes on gives exactly the rest."""
        assert self._driver is not None, "start() comes first"
        call = InProcessCall(self, sink)
        self._calls.add(call)
        try:
            asked = read(build(request, request.model, keep_own_fields=True), self._settings)
            if so_far is not None:
                asked = continued(asked, so_far.text, self._settings.context_tokens)
        except Refused as refused:
            asyncio.get_running_loop().call_soon(call.fail, self._refusal(refused))
        except StreamwayError as problem:
            asyncio.get_running_loop().call_soon(call.fail, problem)
        else:
            call.simulated = self._driver.submit(asked, call)
        return call

    def _refusal(self, refused: Refused) -> StreamwayError:
        if refused.status == 429 or refused.retry_after_s:
            return EngineOverloaded(self._worker, refused.status, refused.retry_after_s or 1.0, refused.message)
        if refused.status >= 500:
            return self.failure(f"it answered {refused.status}: {refused.message}")
        if refused.code == "context_length_exceeded":
            return ContextLengthExceeded(refused.message)
        return EngineRejected(refused.message, refused.status, refused.field)

    def failure(self, problem: str) -> EngineFailed:
        """An error that names the worker."""
        return EngineFailed(self._worker, problem)

    def over(self, call: InProcessCall) -> None:
        """A call has ended; what the engine still does for it is stopped."""
        self._calls.discard(call)
        if call.simulated is not None:
            call.simulated.tag = None
            if self._driver is not None:
                self._driver.cancel(call.simulated)

    async def load(self) -> EngineLoad:
        """The engine's own numbers."""
        return EngineLoad(self._engine.running, self._engine.waiting, self._engine.kv_used)

    async def park(self) -> None:
        """Nothing of it can be used elsewhere."""

    async def failed(self) -> None:
        """Never returns: it lives in this process."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Aborts every call."""
        for call in list(self._calls):
            call.abort()
        if self._driver is not None:
            self._driver.close()


class InProcessCall:
    """One call: an `EngineCall` for the adapter, the tag of its `SimulatedCall` for the engine."""

    def __init__(self, backend: SimulatedBackend, sink: EngineSink) -> None:
        self._backend = backend
        self._sink = sink
        self._over = False
        self._cutters: dict[int, _Cutter] = {}
        self.simulated: SimulatedCall | None = None

    def abort(self) -> None:
        """Frees its slot at once."""
        if not self._over:
            self._over = True
            self._backend.over(self)

    def fail(self, error: StreamwayError) -> None:
        """Ends it with an error."""
        if not self._over:
            self.abort()
            self._sink.failed(error)

    def deliver(self, event: Event) -> None:
        """Tells the sink what the engine did."""
        match event:
            case Piece():
                self._piece(event)
            case Begun():
                self._sink.started()
            case Ended(call):
                self.abort()
                self._sink.ended(None if call.request.faults.no_usage else _usage(call))
            case Broken(garbage=garbage):
                self.fail(self._backend.failure("its stream is garbage" if garbage else "the connection broke"))

    def _piece(self, piece: Piece) -> None:
        request = piece.call.request
        extras = words.choice_extras(piece, logprobs=request.logprobs) if request.logprobs or piece.delta else None
        text = piece.text
        if request.faults.split_utf8:
            text = self._cutters.setdefault(piece.choice, _Cutter()).feed(text, final=bool(piece.finish_reason))
        if not text and extras is None and not piece.finish_reason:
            return
        self._sink.piece(
            piece.choice, text, raw_delta=_encode(extras) if extras else b"", finish_reason=piece.finish_reason
        )


def _usage(call: SimulatedCall) -> common_pb2.Usage:
    """Of the whole answer, also when another call has begun it."""
    counted, request = call.counted, call.request
    prompt_tokens = counted.prompt - request.continued_tokens
    return common_pb2.Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=request.made_tokens + counted.completion,
        cached_prompt_tokens=min(counted.cached, prompt_tokens),
    )


class _Cutter:
    """The fault `split_utf8` without a transport: bytes are cut inside their last code point, and decoded as they come."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def feed(self, text: str, *, final: bool) -> str:
        data = self._rest + text.encode()
        at = len(data) if final else max(0, len(data) - 1)
        self._rest = data[at:]
        return self._decoder.decode(data[:at], final)

    _rest = b""


def _deliver(event: Event) -> None:
    event.call.tag.deliver(event)
