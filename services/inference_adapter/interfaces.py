"""What the inference-adapter needs from an engine.

The engine calls back instead of being iterated: a task switch for each token costs more than the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from services.inference_adapter.core.capabilities import UNKNOWN, Capabilities
from services.inference_adapter.core.transcript import Transcript
from streamway.errors import StreamwayError
from streamway.journal.answer import ChoiceSoFar
from streamway.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class EngineModel:
    """A model an engine serves. `context_tokens` 0: unknown."""

    name: str
    context_tokens: int


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine is. `slots` is how many generations it runs side by side; `pid` 0: not started by us.

    `elastic`: nobody has said how many, so `slots` is a guess; it takes more and orders them by itself. `capabilities`: what it
    can do, as far as that is known. `why`: it has fewer slots than were asked for; "": it has not.
    """

    kind: str
    address: str
    models: tuple[EngineModel, ...]
    slots: int
    pid: int = 0
    elastic: bool = False
    capabilities: Capabilities = UNKNOWN
    why: str = ""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How busy an engine says it is. `kv_used` (0 … 1) is None where it does not tell.

    `put_aside`: how many sequences it has taken the KV away from in mid-answer since it was started; 0: or it does not tell.
    `asleep`: it has given its memory back and loads its model again with the next call.
    """

    running: int
    waiting: int
    kv_used: float | None = None
    put_aside: int = 0
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How weights were exchanged. `why_not_beside`, for people, the old ones had to go first; "": they served meanwhile.

    `load_s`: until the new ones served; `took_s`: until the old ones were unloaded too.
    """

    file: str
    why_not_beside: str
    load_s: float
    took_s: float


class EngineSink(Protocol):
    """Where one engine call puts what it makes. Called on the event loop, in order, never after `abort`.

    `started` at most once; then `piece` any number of times; then exactly one of `ended` and `failed`. A call that fails
    before it starts calls `failed` alone.
    """

    def started(self) -> None:
        """The engine has accepted the request and works on it."""
        ...

    def piece(
        self,
        choice: int,
        text: str,
        *,
        raw_delta: bytes = b"",
        finish_reason: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> None:
        """One chunk of the answer. `text` is cut at a code-point border; `raw_delta` is JSON, see `Token.raw_delta`."""
        ...

    def several(self, choice: int, texts: Sequence[str]) -> None:
        """Chunks that are text and nothing else, which came together; none of them is empty."""
        for text in texts:
            self.piece(choice, text)

    def ended(self, usage: common_pb2.Usage | None) -> None:
        """The engine has said all; every choice had its finish reason. `usage` is None when the engine does not count."""
        ...

    def failed(self, error: StreamwayError) -> None:
        """The engine refused (`EngineRejected`, `ContextLengthExceeded`) or broke (`EngineFailed`)."""
        ...


class EngineCall(Protocol):
    """One running engine call."""

    def abort(self) -> None:
        """Stops it at once and frees its slot; idempotent. The sink is not called any more."""
        ...


class Turns(Protocol):
    """Who wants to know of the engine's real work, off the token path. Neither call raises or blocks."""

    def began(self, request: common_pb2.GenerationRequest) -> None:
        """The engine is about to be called."""
        ...

    def finished(
        self, request: common_pb2.GenerationRequest, transcript: Transcript, usage: common_pb2.Usage | None
    ) -> None:
        """The engine has said all; the transcript may get its last events a little later."""
        ...


class Backend(Protocol):
    """One engine."""

    async def start(self) -> None:
        """Starts or finds the engine and waits until it answers. Raises StartError with what to do."""
        ...

    def info(self) -> EngineInfo:
        """What the engine is; valid after `start`."""
        ...

    def call(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> EngineCall:
        """Starts one engine call. Never raises and never blocks: failures go to the sink, not before this returns.

        With `so_far` the engine goes on behind that text, which `core/continuation.py` found to be honest: the sink gets what
        follows, and a usage that counts the whole answer.
        """
        ...

    async def load(self) -> EngineLoad:
        """How busy the engine is. Raises EngineFailed when it does not answer: the worker then reports unhealthy."""
        ...

    async def park(self) -> None:
        """The worker drains, or has nothing to do: what another engine can use of this one's KV is left where it finds it. Never
        raises; may be called again."""
        ...

    async def failed(self) -> None:
        """Returns when the engine's process has ended by itself; never for an engine that was not started by us."""
        ...

    async def close(self) -> None:
        """Aborts every call and ends an engine that `start` started."""
        ...


@runtime_checkable
class Reloadable(Protocol):
    """A backend that can exchange its weights while it serves."""

    @property
    def reloading(self) -> str:
        """What it does about it just now, for people; "": nothing."""
        ...

    async def reload(self) -> Reloaded:
        """Loads its model file again and returns when the old weights are unloaded: at the earliest when their last answer has
        ended. Goes on when whoever waits is cancelled. Raises EngineFailed with what is wrong; while there is room for both, the
        old ones then serve on, else the engine has failed."""
        ...
