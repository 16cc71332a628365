"""A llama.cpp of ours whose weights are exchanged while it serves.

    call ──► current ──► engine with the old weights ──► its answers end ──► closed
                 └─────► engine with the new ones, from the moment they are loaded

The new ones are what lies at `model_path` then: a file put in the old one's place, or a link that points elsewhere now. So a
worker that is started anew, for whatever reason, has them too, and nothing has to be remembered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from services.inference_adapter.backends.deferred import DeferredCall
from services.inference_adapter.backends.llamacpp import LlamaCppBackend
from services.inference_adapter.backends.llamacpp_plan import needs_of, room_for
from services.inference_adapter.backends.openai_http.sweep import Sweep
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.core.exchanging import Exchange, decide
from services.inference_adapter.interfaces import EngineCall, EngineInfo, EngineLoad, EngineSink, Reloaded
from streamway.errors import EngineFailed
from streamway.journal.answer import ChoiceSoFar
from streamway.runtime.process import StartError
from streamway.runtime.tasks import TaskScope
from streamway.runtime.threads import in_thread
from streamway.v1 import common_pb2

_log = structlog.get_logger("adapter")


class ReloadingBackend:
    """Implements `Backend` and `Reloadable`. `room` tells how many bytes an engine may use now."""

    def __init__(
        self,
        options: BackendOptions,
        worker: str,
        room: Callable[[BackendOptions], int] = room_for,
        sweep: Sweep | None = None,
    ) -> None:
        self._options, self._worker, self._room, self._sweep = options, worker, room, sweep
        self._current = LlamaCppBackend(options, worker, sweep)
        # Of these all but the current one end their last answers.
        self._engines = [self._current]
        self._scope = TaskScope("reload")
        self._serves = asyncio.Event()
        self._serves.set()
        self._exchanged = asyncio.Event()
        # The old weights are gone and the new ones could not be loaded.
        self._lost = asyncio.Event()
        self.reloading = ""

    async def start(self) -> None:
        """As llama.cpp's."""
        await self._current.start()

    def info(self) -> EngineInfo:
        """Of the engine that new calls go to."""
        return self._current.info()

    def call(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> EngineCall:
        """Goes to the newest weights; while there are none it waits for them."""
        if self._serves.is_set():
            return self._current.call(request, sink, so_far)
        return DeferredCall(
            self._scope, self._loaded, lambda: self._current.call(request, sink, so_far), give_up=lambda: None
        )

    async def _loaded(self) -> None:
        await self._serves.wait()

    async def load(self) -> EngineLoad:
        """As llama.cpp's; while no weights take calls it is as if it did not answer."""
        if not self._serves.is_set():
            raise EngineFailed(self._worker, self.reloading)
        return await self._current.load()

    async def park(self) -> None:
        """As llama.cpp's."""
        await self._current.park()

    async def reload(self) -> Reloaded:
        """See `Reloadable`."""
        if self.reloading:
            raise EngineFailed(self._worker, f"it exchanges its weights already: {self.reloading}")
        self.reloading = "the model file is read"
        # Whoever asked may go away; what was begun goes on.
        done: Reloaded | StartError = await asyncio.shield(self._scope.spawn(self._exchange(), "reload"))
        if isinstance(done, StartError):
            raise EngineFailed(self._worker, str(done))
        return done

    async def _exchange(self) -> Reloaded | StartError:
        old, began = self._current, time.monotonic()
        try:
            how = await in_thread(self._decide)
            if how.beside:
                self.reloading = "the new weights are loaded while the old ones serve"
                loaded = await self._begin()
                self.reloading = "the new weights serve; the old ones end their last answers"
                await self._end(old)
            else:
                self.reloading = f"the old weights end their answers before the new ones are loaded: {how.why}"
                self._serves.clear()
                await self._end(old)
                self.reloading = f"the new weights are loaded in the place of the old ones: {how.why}"
                loaded = await self._begin()
        except StartError as problem:
            _log.error("weights_not_exchanged", problem=str(problem), old_ones_serve=self._serves.is_set())
            if not self._serves.is_set():
                self._lost.set()
            return problem
        finally:
            self.reloading = ""
        _log.info("weights_exchanged", beside=how.beside, took_s=round(time.monotonic() - began, 1))
        return Reloaded(str(self._options.model_path), how.why, loaded, time.monotonic() - began)

    def _decide(self) -> Exchange:
        model, context = needs_of(self._options)
        return decide(self.info().slots, context, model, self._room(self._options), gpu=self._options.gpu)

    async def _begin(self) -> float:
        """Starts an engine with the new weights, to which calls go from then on; the seconds it took. Raises StartError."""
        began, info = time.monotonic(), self.info()
        # Clients know the model by its name, which is not the file's affair any more.
        same = {"model_name": info.models[0].name, "slots": info.slots}
        new = LlamaCppBackend(self._options.model_copy(update=same), self._worker, self._sweep)
        self._engines.append(new)
        try:
            await new.start()
        except BaseException:
            self._engines.remove(new)
            raise
        self._current = new
        exchanged, self._exchanged = self._exchanged, asyncio.Event()
        exchanged.set()
        self._serves.set()
        return time.monotonic() - began

    async def _end(self, old: LlamaCppBackend) -> None:
        await old.quiet()
        await old.close()
        self._engines.remove(old)

    async def failed(self) -> None:
        """Returns when the engine that calls go to has ended by itself, or there is none any more."""
        while True:
            current = self._current
            ended = self._scope.spawn(current.failed(), "failed")
            lost = self._scope.spawn(self._lost.wait(), "lost")
            waiting = {ended, lost, self._scope.spawn(self._exchanged.wait(), "exchanged")}
            try:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
            if lost in done or (ended in done and current is self._current):
                return

    async def close(self) -> None:
        """Closes every engine."""
        await self._scope.close()
        for engine in self._engines:
            await engine.close()
