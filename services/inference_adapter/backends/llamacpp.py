"""llama.cpp as an engine: started here in a child process or in our own, or running somewhere already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from services.inference_adapter.backends.deferred import DeferredCall
from services.inference_adapter.backends.gpu_claim import GPUClaim
from services.inference_adapter.backends.llamacpp_inside import Inside
from services.inference_adapter.backends.llamacpp_plan import LlamaPlan, claim_gpus, plan_for
from services.inference_adapter.backends.llamacpp_process import LlamaProcess
from services.inference_adapter.backends.llamacpp_slots import SlotFiles, SlotKeeper
from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.openai_http.body import OurFields, build
from services.inference_adapter.backends.openai_http.sweep import Sweep
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.backends.probing import Probing
from services.inference_adapter.core.continuation import choices_of, made_tokens
from services.inference_adapter.interfaces import EngineCall, EngineInfo, EngineLoad, EngineModel, EngineSink
from streamway.errors import EngineFailed, StreamwayError
from streamway.journal.answer import ChoiceSoFar
from streamway.runtime.process import StartError
from streamway.runtime.tasks import TaskScope
from streamway.runtime.threads import in_thread
from streamway.v1 import common_pb2

# Asking for /slots makes the server produce a result, and while results keep coming it does not look for cancels.
SLOTS_INTERVAL_S: Final = 2.0
# Slots of a server that was started by somebody else and does not tell.
_UNTOLD_SLOTS: Final = 4
# Files of slots that nobody has come back for.
_FILES_TTL_S: Final = 3600.0
_INSIDE: Final = "llamacpp_inside"
_log = structlog.get_logger("adapter")


class _Slot(msgspec.Struct):
    id: int = 0
    n_ctx: int = 0
    n_prompt_tokens: int = 0
    is_processing: bool = False


class _Tokens(msgspec.Struct):
    tokens: list[int] = msgspec.field(default_factory=list)


class _Props(msgspec.Struct):
    total_slots: int = 0
    default_generation_settings: dict[str, Any] = msgspec.field(default_factory=dict)
    is_sleeping: bool = False


class LlamaCppBackend:
    """Drives llama.cpp's server over HTTP, with a fresh connection for each stream.

    Fresh ones because of kept-alive connections about one streamed request in forty failed on this server.
    """

    def __init__(self, options: BackendOptions, worker: str, sweep: Sweep | None = None) -> None:
        self._worker = worker
        self._process: LlamaProcess | Inside | None = None
        self._inside: Inside | None = None
        self._plan: LlamaPlan | None = None
        self._claim: GPUClaim | None = None
        self._scope = TaskScope("llamacpp-calls")
        self._keeper: SlotKeeper | None = None
        if not options.url or options.kind == _INSIDE:
            options = _started_options(options)
            if options.kind == _INSIDE:
                self._process = self._inside = Inside(options, worker)
            else:
                self._process = LlamaProcess(options)
            options = options.model_copy(
                update={"url": self._process.url, "model_name": options.model_name or _name_of(options.model_path)}
            )
        # Not merely a default: somebody who sets keep_alive has measured it with a newer server.
        keep_alive = options.keep_alive if options.keep_alive is not None else False
        self._options = options.model_copy(update={"keep_alive": keep_alive})
        # It asks about slots, props and health in any case; the answers too, unless the engine is inside.
        self._http = OpenAIHTTPBackend(
            self._options.model_copy(update={"probe": False}), worker, kind="llamacpp", sweep=sweep
        )
        self._info: EngineInfo | None = None
        self._kv_used: float | None = None
        self._slots_asked = float("-inf")
        self._worked_at = 0.0
        self._asleep = False
        # Calls that have not ended, of an engine of ours.
        self._calls = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def start(self) -> None:
        """Starts the server, or finds it. Raises StartError with one line that says what to do."""
        if self._process is not None:
            self._claim = claim_gpus(self._options)
            self._plan = await in_thread(lambda: plan_for(self._options))
            if self._plan.why:
                _log.warning("fewer_slots", why=self._plan.why)
            self._keeper = self._make_keeper(self._plan)
            await self._process.start(self._options.model_name, self._plan)
        self._worked_at = time.monotonic()
        try:
            await self._http.start()
            self._info = await self._describe()
            if self._options.probe:
                probing = Probing(self._tried, self._info.models[0].name, self._info.capabilities)
                self._info = replace(self._info, capabilities=await probing.run(self._options.probe_timeout_s))
                if self._keeper is not None:
                    # What was tried is in slots that any session may have.
                    self._keeper.slots.forget()
        except BaseException:
            await self.close()
            raise
        _log.info(
            "engine_ready",
            model=self._info.models[0].name,
            slots=self._info.slots,
            pid=self._info.pid,
            context_tokens=self._info.models[0].context_tokens,
        )

    def _make_keeper(self, plan: LlamaPlan) -> SlotKeeper:
        files = None
        if folder := plan.shape.slot_folder:
            files = SlotFiles(Path(folder), plan.model.fingerprint, self._options.slot_folder_bytes, _FILES_TTL_S)
            files.open()
        return SlotKeeper(plan.shape.slots, self._http.post, files, self._options.start_timeout_s)

    async def _describe(self) -> EngineInfo:
        found = self._http.info()
        props = await self._props()
        told = self._plan.shape.context_tokens if self._plan else self._options.context_tokens
        context = told or props.default_generation_settings.get("n_ctx") or 0
        models = tuple(
            EngineModel(model.name, context if isinstance(context, int) and context > 0 else model.context_tokens)
            for model in found.models
        )
        slots = self._plan.shape.slots if self._plan else self._options.slots or props.total_slots or _UNTOLD_SLOTS
        pid, why = self._process.pid if self._process else 0, self._plan.why if self._plan else ""
        return EngineInfo(
            self._options.kind, found.address, models, slots, pid, capabilities=found.capabilities, why=why
        )

    async def _props(self) -> _Props:
        try:
            status, body = await self._http.get("/props")
            return msgspec.json.decode(body, type=_Props) if status == 200 else _Props()
        except (EngineFailed, msgspec.DecodeError):
            return _Props()

    def info(self) -> EngineInfo:
        """What the engine is; valid after `start`."""
        assert self._info is not None, "start() comes first"
        return self._info

    def call(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> EngineCall:
        """Starts one streamed chat completion; a last message of the assistant is what its server goes on with."""
        return self._begin(request, sink, so_far, count=True)

    def _tried(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> EngineCall:
        """The same with usage as the server counts it: that it goes on shows in its prompt."""
        return self._begin(request, sink, so_far, count=False)

    def _begin(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None, *, count: bool
    ) -> EngineCall:
        keeper = self._keeper
        if keeper is None:
            return self._http.call(request, sink, so_far)
        seat = keeper.take(request, choices_of(request))
        self._worked_at = time.monotonic()
        self._calls += 1
        self._quiet.clear()

        def over() -> None:
            keeper.leave(seat)
            self._worked_at = time.monotonic()
            self._calls -= 1
            if not self._calls:
                self._quiet.set()

        def begin(so_far: ChoiceSoFar | None = so_far) -> EngineCall:
            # -1: it chooses. A client does not: it would wait for another's slot.
            fields = {"id_slot": -1 if seat.slot is None else seat.slot}
            if self._inside is None:
                return self._http.call(request, sink, so_far, fields=fields, on_over=over)
            return self._call_inside(self._inside, request, sink, so_far, fields, over)

        if seat.why != "restored" and (so_far is None or not count):
            return begin()
        told = so_far

        async def first() -> None:
            nonlocal told
            if seat.why == "restored":
                await keeper.restore(seat)
            if so_far is not None and count:
                told = await self._counted(so_far)

        return DeferredCall(self._scope, first, lambda: begin(told), over)

    async def _counted(self, so_far: ChoiceSoFar) -> ChoiceSoFar:
        """The same with as many tokens as the engine makes of its text. It was counted by pieces, and a character that takes
        three tokens, as most of Chinese, came in one."""
        body = msgspec.json.encode({"content": so_far.text, "add_special": False})
        try:
            status, answer = await self._http.post("/tokenize", body, self._options.start_timeout_s)
            count = len(msgspec.json.decode(answer, type=_Tokens).tokens) if status == 200 else 0
        except (EngineFailed, msgspec.DecodeError):
            count = 0
        return replace(so_far, units=max(so_far.units, count))

    def _call_inside(
        self,
        inside: Inside,
        request: common_pb2.GenerationRequest,
        sink: EngineSink,
        so_far: ChoiceSoFar | None,
        fields: dict[str, int],
        over: Callable[[], None],
    ) -> EngineCall:
        # Its progress in prefill is what a cancel rides on.
        ours = OurFields({**fields, "return_progress": True}, "", "")
        try:
            body = build(request, request.model, so_far=so_far, ours=ours)
        except StreamwayError as problem:
            call = inside.idle_call(sink, over)
            asyncio.get_running_loop().call_soon(call.fail, problem)
            return call
        return inside.call(sink, body, choices_of(request), made_tokens(so_far) if so_far is not None else 0, over)

    async def load(self) -> EngineLoad:
        """Our own count of calls, and the KV use of /slots, asked for no more than every two seconds.

        /health is answered beside the server's queue, so that a long prefill does not look like an illness.
        """
        status, _ = await self._http.get("/health")
        if status != 200:
            raise EngineFailed(self._worker, f"GET /health answered {status}")
        running = self._http.running if self._inside is None else len(self._inside.calls)
        if running or self._process is None:
            if time.monotonic() - self._slots_asked >= SLOTS_INTERVAL_S:
                self._slots_asked = time.monotonic()
                await self._ask_slots()
        else:
            # Asking an engine of ours would only keep it awake.
            self._kv_used = 0.0
            await self._rest()
        return EngineLoad(running, 0, self._kv_used, asleep=self._asleep)

    async def _rest(self) -> None:
        """Nobody works: its KV is saved after half of the time until it gives its memory back, and it is seen that it has."""
        sleep_s, keeper = self._options.idle_unload_s, self._keeper
        idle_s = time.monotonic() - self._worked_at
        if not sleep_s or keeper is None or idle_s < sleep_s / 2:
            self._asleep = False
        elif not self._asleep:
            self._asleep = (await self._props()).is_sleeping
            if self._asleep:
                _log.info("engine_asleep", idle_s=round(idle_s))
                keeper.slots.forget()
            else:
                await keeper.park()

    async def park(self) -> None:
        """Leaves the KV of its sessions in the slot folder."""
        if self._keeper is not None and not self._asleep:
            await self._keeper.park()

    async def _ask_slots(self) -> None:
        try:
            status, body = await self._http.get("/slots")
            slots = msgspec.json.decode(body, type=list[_Slot]) if status == 200 else []
        except (EngineFailed, msgspec.DecodeError):
            return  # busy in a long prefill, or closed to us: the last known value stands
        if self._keeper is not None:
            self._keeper.slots.observe(frozenset(slot.id for slot in slots if slot.is_processing))
        room = sum(slot.n_ctx for slot in slots)
        self._kv_used = (
            min(1.0, sum(slot.n_prompt_tokens for slot in slots if slot.is_processing) / room) if room else None
        )

    async def quiet(self) -> None:
        """Returns when no call runs at an engine that was started here."""
        await self._quiet.wait()

    async def failed(self) -> None:
        """Returns when the server that was started here has ended by itself."""
        if self._process is None:
            await asyncio.Event().wait()
        else:
            await self._process.ended()

    async def close(self) -> None:
        """Aborts every call; ends the server that was started here."""
        await self._scope.close()
        await self._http.close()
        if self._process is not None:
            await self._process.close()
        if self._claim is not None:
            self._claim.release()


def _started_options(options: BackendOptions) -> BackendOptions:
    path = options.model_path
    if path is None:
        raise StartError("llama.cpp needs a model: set model_path to a GGUF file, or url to a running llama.cpp server")
    return options.model_copy(update={"model_path": path.expanduser().absolute()})


def _name_of(path: Path | None) -> str:
    """SmolLM2-135M-Instruct.Q4_1.gguf → smollm2-135m-instruct: the quantization is not part of the name."""
    return path.name.split(".gguf")[0].rsplit(".Q", 1)[0].lower() if path is not None else ""
