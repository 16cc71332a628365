"""One generation from the window to its terminal event: it is the engine's sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog

from services.inference_adapter.core.concurrency import Concurrency
from services.inference_adapter.core.engine_pace import EnginePace
from services.inference_adapter.core.memory import Memory, Transcript
from services.inference_adapter.core.numbering import Numbering
from services.inference_adapter.core.silence import Silence, SilenceLimits, SilenceWatch
from services.inference_adapter.interfaces import Backend, EngineCall, Turns
from services.inference_adapter.io.fanout.flusher import Flusher
from services.inference_adapter.metrics import AdapterMetrics
from streamway.errors import Cancelled, FirstTokenTimeout, Internal, StreamwayError, TokenGap, to_status
from streamway.journal.answer import ChoiceSoFar
from streamway.lanes import TakenTask
from streamway.runtime.clock import Clock
from streamway.telemetry.context import RequestContext, current
from streamway.v1 import common_pb2
from streamway.valkey.keys import is_bulk, task_class

_log = structlog.get_logger("adapter")

State = Literal["queued", "running", "finished", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all generations of a worker share. `new_epoch` makes the epoch of an engine call from its attempt; an engine call
    that is silent beyond `silence` is given up."""

    worker: str
    backend: Backend
    memory: Memory
    flusher: Flusher
    clock: Clock
    metrics: AdapterMetrics
    pace: EnginePace
    concurrency: Concurrency
    new_epoch: Callable[[int], int]
    flush_units: int
    silence: SilenceLimits
    turns: Turns


class Generation:
    """Numbers what its engine call makes, and passes it on in flushes: the first token at once, then with the flusher's tick.

    `created_at` is when the request was accepted, on the monotonic clock. `task` is None when it did not come from a lane.
    `on_end` is called once, after the terminal event was passed on. One with a response channel is a `JournaledGeneration`.
    """

    journaled = False

    __slots__ = (
        "_call",
        "_called_at",
        "_context",
        "_created_at",
        "_first_at",
        "_flowing",
        "_marked",
        "_numbering",
        "_on_end",
        "_place",
        "_started",
        "_watch",
        "id",
        "request",
        "state",
        "task",
        "tokens",
        "transcript",
        "used_tokens",
    )

    def __init__(
        self,
        request: common_pb2.GenerationRequest,
        transcript: Transcript,
        place: Workplace,
        context: RequestContext,
        *,
        created_at: float,
        task: TakenTask | None,
        tokens: int,
        on_end: Callable[[Generation], None],
    ) -> None:
        self.id = request.generation
        self.request = request
        self.transcript = transcript
        self.task = task
        self.state: State = "queued"
        # Tokens of prompt and answer: estimated, and what the engine has counted when it ended, less what was in its KV.
        self.tokens = tokens
        self.used_tokens: int | None = None
        self._place = place
        self._context = context
        self._created_at = created_at
        self._on_end = on_end
        self._numbering = Numbering()
        self._call: EngineCall | None = None
        # When this engine call began and made its first token; 0: it has not, or goes on with another's text.
        self._called_at = self._first_at = 0.0
        self._started = False
        self._marked = False
        # This engine call has made a token.
        self._flowing = False
        bulk = is_bulk(task_class(request.priority))
        self._watch = SilenceWatch(place.silence.first_token_of(request.model, bulk=bulk), place.silence.gap_s)

    @property
    def over(self) -> bool:
        """The terminal event is out, or on its way."""
        return self.state in ("finished", "failed", "cancelled")

    @property
    def tasks(self) -> list[TakenTask]:
        """The copies of the task that this worker holds."""
        return [] if self.task is None else [self.task]

    def accept(self, accepted: common_pb2.Accepted) -> None:
        """Makes the `accepted` event of a generation that no router accepted."""
        self._numbering.accepted(accepted)
        self._place.flusher.now(self)

    def run(self) -> None:
        """Calls the engine."""
        place = self._place
        self.state = "running"
        self._numbering.epoch = place.new_epoch(self.task.copy.attempt if self.task is not None else 1)
        place.metrics.queue_wait.observe(self._waited_s())
        self._call_engine(None)

    def tick(self, now: float) -> None:
        """Time has passed: gives an engine up that has been silent for too long."""
        if self._call is None or self.over:
            return
        silence, place = self._watch.look(now), self._place
        if silence is None:
            return
        error: StreamwayError
        if silence is Silence.FIRST_TOKEN:
            error = FirstTokenTimeout(place.worker, self._watch.first_token_s)
        else:
            error = TokenGap(place.worker, place.silence.gap_s)
        self._note_failure(error)
        self._gave_up(error)

    def _call_engine(self, so_far: ChoiceSoFar | None) -> None:
        self._place.turns.began(self.request)
        token = current.set(self._context)
        now = self._place.clock.monotonic()
        self._watch.began(now)
        self._called_at = now if so_far is None else 0.0
        try:
            self._call = self._place.backend.call(self.request, self, so_far)
        except Exception:  # noqa: BLE001 — backends promise not to raise; the others must not pay for one that does
            _log.exception("engine_call_raised", generation=self.id)
            self.failed(Internal(self.id))
        finally:
            current.reset(token)

    def _gave_up(self, error: StreamwayError) -> None:
        self.stop(error)

    def stop(self, error: StreamwayError) -> None:
        """Aborts the engine call, if there is one, and ends with `error`."""
        if self.over:
            return
        if self._call is not None:
            self._call.abort()
        self._numbering.failed(to_status(error))
        self._end("cancelled" if isinstance(error, Cancelled) else "failed")

    def flush(self) -> tuple[int, int]:
        """Passes on what has gathered; returns how many token units and events that were."""
        self._marked = False
        numbering = self._numbering
        units = numbering.pending_units
        events = numbering.take()
        if not events:
            return 0, 0
        transcript = self.transcript
        added = self._place.memory.append(transcript, events)
        # A copy: a reader whose outbox overflows leaves while we walk.
        for reader in transcript.readers[:]:
            reader.grown(added)
        return units, len(events)

    # --- EngineSink ---------------------------------------------------------------------------------------------------

    def started(self) -> None:
        """The engine works on it."""
        if self.over or self._started:
            return
        self._started = True
        numbering = self._numbering
        numbering.started(numbering.epoch, self._place.worker, int(self._waited_s() * 1000))
        self._mark()

    def piece(
        self,
        choice: int,
        text: str,
        *,
        raw_delta: bytes = b"",
        finish_reason: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> None:
        """A chunk of the answer. Per-token path."""
        numbering = self._numbering
        self._watch.spoke = True
        if not self._flowing:
            self.started()
            if self.over:
                return
            self._flowing = True
            self._first_at, waited_s = self._place.clock.monotonic(), self._waited_s()
            self._place.metrics.first_token.observe(waited_s)
            self._place.pace.first_tokens.note(self.request.model, waited_s, self._first_at)
            if self._called_at:
                self._place.concurrency.first_token(self._first_at - self._called_at)
            numbering.piece(choice, text, raw_delta, finish_reason, token_ids)
            self._place.flusher.now(self)
            return
        numbering.piece(choice, text, raw_delta, finish_reason, token_ids)
        if numbering.pending_units >= self._place.flush_units:
            self._place.flusher.now(self)
        elif not self._marked:
            self._marked = True
            self._place.flusher.mark(self)

    def ended(self, usage: common_pb2.Usage | None) -> None:
        """The engine has said all."""
        self.started()
        self._note_pace(usage)
        if usage is not None:
            self.used_tokens = usage.prompt_tokens - usage.cached_prompt_tokens + usage.completion_tokens
        self._numbering.finished(usage)
        self._end("finished")
        if usage is None or not usage.estimated:
            self._place.turns.finished(self.request, self.transcript, usage)

    def failed(self, error: StreamwayError) -> None:
        """The engine refused or broke."""
        self._note_failure(error)
        self._numbering.failed(to_status(error))
        self._end("failed")

    # ------------------------------------------------------------------------------------------------------------------

    def _end(self, state: State) -> None:
        self.state = state
        place = self._place
        # Readers that are told of the events below must see that they were the last.
        place.memory.end(self.transcript, place.clock.monotonic())
        place.flusher.now(self)
        self._note_end()
        self._on_end(self)

    def _note_pace(self, usage: common_pb2.Usage | None) -> None:
        if self._called_at and self._first_at:
            uncached = usage.prompt_tokens - usage.cached_prompt_tokens if usage is not None else 0
            now = self._place.clock.monotonic()
            self._place.pace.ended(self._first_at - self._called_at, now - self._called_at, uncached)

    def _note_failure(self, error: StreamwayError) -> None:
        self._place.metrics.engine_errors.labels(error.name).inc()
        _log.warning("engine_call_failed", generation=self.id, reason=error.name, trace=self._context.trace_id)

    def _note_end(self) -> None:
        self._place.metrics.generations.labels(self.state).inc()
        _log.debug(
            "generation_ended",
            generation=self.id,
            trace=self._context.trace_id,
            state=self.state,
            units=self._numbering.units,
            seconds=round(self._waited_s(), 3),
        )

    def _mark(self) -> None:
        if not self._marked:
            self._marked = True
            self._place.flusher.mark(self)

    def _waited_s(self) -> float:
        return max(0.0, self._place.clock.monotonic() - self._created_at)
