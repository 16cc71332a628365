"""An engine that does what the test says, piece by piece."""

from __future__ import annotations

import asyncio
import time

from services.inference_adapter.core.capabilities import UNKNOWN
from services.inference_adapter.interfaces import EngineInfo, EngineLoad, EngineModel, EngineSink
from services.inference_adapter.io import token_check
from streamway.errors import EngineFailed
from streamway.journal import ChoiceSoFar
from streamway.v1 import common_pb2


class ScriptedCall:
    """One engine call; the test is the engine."""

    def __init__(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> None:
        self.request = request
        self.sink = sink
        self.so_far = so_far
        self.aborted_at: float | None = None

    @property
    def prompt(self) -> str:
        return self.request.messages[-1].content

    @property
    def aborted(self) -> bool:
        return self.aborted_at is not None

    def abort(self) -> None:
        if self.aborted_at is None:
            self.aborted_at = time.monotonic()

    def say(self, *texts: str) -> None:
        """Starts if need be, and makes one piece of each text."""
        self.sink.started()
        for text in texts:
            self.sink.piece(0, text)

    def end(self, reason: str = "stop", *, prompt_tokens: int = 1, completion_tokens: int = 1) -> None:
        self.sink.piece(0, "", finish_reason=reason)
        self.sink.ended(common_pb2.Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens))


class ScriptedEngine:
    """A Backend. `answer` set: each call says these pieces at once and ends; None: the test drives each call. `mute`: it makes no
    token when a worker that doubts it asks for one."""

    def __init__(self, slots: int = 2, answer: tuple[str, ...] | None = None, model: str = "scripted") -> None:
        self.slots = slots
        self.answer = answer
        self.model = model
        self.calls: list[ScriptedCall] = []
        self.broken = self.mute = False
        self.checks = 0
        self.kv_used = 0.25
        self.capabilities = UNKNOWN
        self.died = asyncio.Event()
        self.closed = False

    async def start(self) -> None:
        """Nothing to start."""

    def info(self) -> EngineInfo:
        return EngineInfo(
            "simulated", "unix:scripted", (EngineModel(self.model, 1000),), self.slots, capabilities=self.capabilities
        )

    def call(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> ScriptedCall:
        call = ScriptedCall(request, sink, so_far)
        if request.generation == token_check.NAME:
            self.checks += 1
            if not self.mute:
                asyncio.get_running_loop().call_soon(call.say, "Hi")
            return call
        self.calls.append(call)
        if self.answer is not None:
            asyncio.get_running_loop().call_soon(self._answer, call)
        return call

    async def load(self) -> EngineLoad:
        if self.broken:
            raise EngineFailed("scripted", "it was told to be broken")
        return EngineLoad(0, 0, self.kv_used)

    async def park(self) -> None:
        """Nothing of it can be used elsewhere."""

    async def failed(self) -> None:
        await self.died.wait()

    async def close(self) -> None:
        self.closed = True

    async def next_call(self, number: int = 1) -> ScriptedCall:
        """The `number`th call, waited for."""
        async with asyncio.timeout(10):
            while len(self.calls) < number:
                await asyncio.sleep(0.005)
        return self.calls[number - 1]

    def _answer(self, call: ScriptedCall) -> None:
        if not call.aborted and self.answer is not None:
            call.say(*self.answer)
            call.end()
