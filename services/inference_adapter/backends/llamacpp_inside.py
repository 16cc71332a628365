"""llama.cpp inside the adapter's own process: requests in and tokens out by a call, without HTTP or a socket.

    loop ──build──► Inside ──bytes──► a thread of the crew: handle_chat_completions(body, heard)
                       ▲                       │ heard(chunk) → False; True stops it
                       │ one wake-up a tick    ▼
                Inside._deliver ◄────────── Handover

The extension takes and gives JSON as bytes: what it gives as dicts it has parsed from the same text, at a third more CPU. Its
threads wait without the interpreter's lock. While it prefills it is asked to tell its progress, after each batch of 128 tokens:
that is where a cancel is seen before the first token.

It can do two things that a process of its own can't: hold the loop up while it loads the model (its constructor keeps the lock),
and take the adapter with it when it aborts. Takeover is for that.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from services.inference_adapter.backends.llamacpp_child import configure
from services.inference_adapter.backends.llamacpp_plan import LlamaPlan
from services.inference_adapter.backends.llamacpp_process import FOLDER, compute_threads, remove_left_folders
from services.inference_adapter.backends.model_file import parts_of
from services.inference_adapter.backends.openai_http import refusals
from services.inference_adapter.backends.openai_http.chunks import BadChunk, ChunkReader, EngineSaid, counted
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.core.fitting import Shape
from services.inference_adapter.interfaces import EngineSink
from streamway.errors import EngineFailed, EngineRejected, StreamwayError
from streamway.runtime.crew import Crew
from streamway.runtime.handover import Handover
from streamway.runtime.process import StartError
from streamway.runtime.threads import in_thread

# How long `close` waits for native calls that were told to stop: a batch of prefill on a busy machine.
STOP_GRACE_S: Final = 5.0
_AHEAD_BYTES: Final = 1024 * 1024
_log = structlog.get_logger("adapter")


class Inside:
    """One llama.cpp in this process. `options` has model_path set.

    Its server also listens on a unix socket in a private folder: for its health, its slots and its model list.
    """

    pid = 0

    def __init__(self, options: BackendOptions, worker: str) -> None:
        assert options.model_path is not None
        self._options, self._worker, self._model = options, worker, options.model_path
        self._folder = Path(tempfile.gettempdir()) / f"{FOLDER}{os.getpid()}-{secrets.token_hex(4)}"
        self._crew: Crew | None = None
        self._slots = self._free = 0
        self._queue: deque[InsideCall] = deque()
        self._heard: Handover[tuple[InsideCall, bytes | Exception | None]] | None = None
        self._server: Any = None
        self.calls: set[InsideCall] = set()

    @property
    def url(self) -> str:
        return f"unix:{self._folder / 'engine.sock'}"

    async def start(self, name: str, plan: LlamaPlan) -> None:
        """Loads the model; the loop stands still meanwhile, whichever thread does it. Raises StartError."""
        self._heard = Handover(asyncio.get_running_loop(), self._deliver)
        self._slots = self._free = plan.shape.slots
        self._crew = Crew(self._slots, "llamacpp")
        remove_left_folders(self._folder.parent)
        self._folder.mkdir(mode=0o700)
        _log.info("engine_loading", model=self._model.name, megabytes=plan.model.bytes // 1_000_000)
        self._server = await in_thread(lambda: self._load(name, plan.shape))

    def _load(self, name: str, shape: Shape) -> Any:
        # OpenMP's threads spin while they wait, which gives gaps of seconds. Read when llama.cpp is loaded: before the import.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        try:
            import xllamacpp
        except ImportError as problem:
            raise StartError(f"xllamacpp cannot be imported ({problem}); install streamway[llamacpp]") from None
        native: Any = xllamacpp
        settings = configure(
            native,
            model=str(self._model),
            name=name,
            socket=self.url.removeprefix("unix:"),
            threads=self._options.threads or compute_threads(),
            shape=shape,
        )
        settings.verbosity = 1  # errors: its log is our own standard error here
        _read_ahead(self._model)
        try:
            return native.Server(settings)
        except Exception as problem:  # noqa: BLE001 - native code raises what it likes
            raise StartError(
                f"llama.cpp cannot load {self._model}: {problem}; is it a complete GGUF file, and is there memory for it?"
            ) from None

    def call(
        self, sink: EngineSink, body: bytes, choices: int, made_tokens: int, on_over: Callable[[], None]
    ) -> InsideCall:
        """Begins one call, when as many slots are free as it has choices; whoever came first goes first."""
        slots = min(choices, self._slots)
        call = InsideCall(self, sink, body, slots, made_tokens, self._worker, on_over)
        self.calls.add(call)
        self._queue.append(call)
        asyncio.get_running_loop().call_soon(self._begin_more)
        return call

    def idle_call(self, sink: EngineSink, on_over: Callable[[], None]) -> InsideCall:
        """One that is never begun, for what can't be asked."""
        return InsideCall(self, sink, b"", 0, 0, self._worker, on_over)

    def _begin_more(self) -> None:
        while self._queue and (self._queue[0].over or self._queue[0].slots <= self._free):
            call = self._queue.popleft()
            if not call.over:
                self._free -= call.slots
                assert self._crew is not None
                self._crew.take(partial(self._run, call))

    def _run(self, call: InsideCall) -> None:
        """In a thread: one native call, which returns when its answer has ended or was stopped."""
        assert self._heard is not None
        put = self._heard.put

        def heard(chunk: bytes) -> bool:
            return not put((call, chunk)) or call.over

        end: Exception | None = None
        try:
            self._server.handle_chat_completions(call.body, heard)
        except Exception as problem:  # noqa: BLE001 - native code raises what it likes
            end = problem
        put((call, end))

    def _deliver(self, what: tuple[InsideCall, bytes | Exception | None]) -> None:
        call, said = what
        if isinstance(said, bytes):
            call.chunk(said)
            return
        self._free += call.slots
        call.returned(said)
        self._begin_more()

    async def ended(self) -> None:
        """Never returns: when llama.cpp ends, so does this process."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Stops every call and frees the model."""
        for call in list(self.calls):
            call.abort()
        self._queue.clear()
        server, self._server = self._server, None
        crew = self._crew
        if crew is None or await in_thread(lambda: crew.end(STOP_GRACE_S)):
            del server
        else:
            # Its destructor would wait for them without an end.
            _log.warning("engine_does_not_stop", waited_s=STOP_GRACE_S)
            _ABANDONED.append(server)
        shutil.rmtree(self._folder, ignore_errors=True)


def _read_ahead(model: Path) -> None:
    """Into the machine's memory: the constructor, which holds the loop up, then waits for no disk."""
    buffer = bytearray(_AHEAD_BYTES)
    for part in parts_of(model):
        with part.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


_ABANDONED: Final[list[Any]] = []


class InsideCall:
    """One call. `slots`: how many it holds while it runs; `on_over` is called once when it has ended, however it did."""

    def __init__(
        self,
        inside: Inside,
        sink: EngineSink,
        body: bytes,
        slots: int,
        made_tokens: int,
        worker: str,
        on_over: Callable[[], None],
    ) -> None:
        self._on_over = on_over
        self._inside, self._sink, self._worker, self._made_tokens = inside, sink, worker, made_tokens
        self._reader = ChunkReader(sink)
        self._started = False
        self.body, self.slots = body, slots
        # Read by the native call's thread after each chunk.
        self.over = False

    def abort(self) -> None:
        """Stops it at its next token, or its next batch of prefill."""
        if not self.over:
            self._reader.mute()
            self._finish()

    def chunk(self, data: bytes) -> None:
        """A chunk of the answer, or an error in its place."""
        if self.over:
            return
        try:
            if not self._started and not data.startswith(b'{"error"'):
                self._started = True
                self._sink.started()
            self._reader.read(data)
        except EngineSaid as said:
            self.fail(refusals.from_stream(said.body, self._worker))
        except BadChunk as problem:
            self.fail(EngineFailed(self._worker, f"its stream is garbage: {problem}"))

    def returned(self, problem: Exception | None) -> None:
        """The native call has returned."""
        if self.over:
            return
        if isinstance(problem, ValueError):
            self.fail(EngineRejected(str(problem)[: refusals.MESSAGE_LIMIT], 400))
        elif problem is not None:
            self.fail(EngineFailed(self._worker, f"llama.cpp raised {type(problem).__name__}"))
        elif self._reader.open or not self._reader.ended:
            self.fail(EngineFailed(self._worker, "its stream ended in the middle of the answer"))
        else:
            self._finish()
            self._sink.ended(counted(self._reader.usage, self._made_tokens))

    def fail(self, error: StreamwayError) -> None:
        """Ends it with an error."""
        if not self.over:
            self._finish()
            self._sink.failed(error)

    def _finish(self) -> None:
        self.over = True
        self._inside.calls.discard(self)
        self._on_over()
