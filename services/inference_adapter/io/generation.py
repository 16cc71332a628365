"""One generation from the window to its terminal event: it is the engine's sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import structlog
from msgspec.structs import replace

from services.inference_adapter.core import hop_facts
from services.inference_adapter.core.continuation import choices_of
from services.inference_adapter.core.estimate import estimated_prompt
from services.inference_adapter.core.numbering import Numbering
from services.inference_adapter.core.prompt_type import prompt_type
from services.inference_adapter.core.silence import Silence, SilenceWatch
from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.interfaces import EngineCall
from services.inference_adapter.io.retries import RETRIED
from services.inference_adapter.io.workplace import Workplace
from streamway.errors import (
    Cancelled,
    EngineOverloaded,
    FirstTokenTimeout,
    Internal,
    StreamwayError,
    TokenGap,
    to_status,
)
from streamway.journal.answer import ChoiceSoFar
from streamway.lanes import EarlierCall, TakenTask
from streamway.telemetry.context import RequestContext, current
from streamway.telemetry.engine_calls import span_of_call, trace_of_call
from streamway.telemetry.hops import Hop
from streamway.v1 import common_pb2
from streamway.valkey.keys import is_bulk, task_class

_log = structlog.get_logger("adapter")

# "moved": another worker makes it from the beginning.
State = Literal["queued", "running", "moved", "finished", "failed", "cancelled"]


class Generation:
    """Numbers what its engine call makes, and passes it on in flushes: the first token at once, then with the flusher's tick.

    `created_at` is when the request was accepted, on the monotonic clock. `task` is None when it did not come from a lane.
    `on_end` is called once, after the terminal event was passed on. `on_failed` is told of an engine call that came to nothing
    before its first token, where another worker may make it again: it then calls `leave`, or `stop` with the same error.
    One with a response channel is a `JournaledGeneration`.
    """

    journaled = False

    __slots__ = (
        "_call",
        "_call_hop",
        "_called_at",
        "_context",
        "_created_at",
        "_epoch",
        "_first_at",
        "_flowing",
        "_hop",
        "_marked",
        "_numbering",
        "_on_end",
        "_on_failed",
        "_outcome",
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
        "withdrawn",
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
        on_failed: Callable[[Generation, StreamwayError], None] | None = None,
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
        facts = hop_facts.of_task(request, task.copy.attempt if task is not None else 1)
        self._hop = place.hops.begin(
            hop_facts.name_of_task(request), context, self.id, kind="consumer", facts=facts, counted=True
        )
        self._call_hop: Hop | None = None
        self._created_at = created_at
        self._on_end = on_end
        self._on_failed = on_failed
        # It was cancelled while it was on its way to another worker.
        self.withdrawn: Cancelled | None = None
        self._numbering = Numbering()
        if task is not None:
            self._numbering.retried(task.copy.before)
        self._call: EngineCall | None = None
        # Of this engine call. Its events carry it from `started` on: what fails before that is told without.
        self._epoch = 0
        # When this engine call began and made its first token; 0: it has not, or goes on with another's text.
        self._called_at = self._first_at = 0.0
        self._started = False
        self._marked = False
        # How it ended, for whoever looks at its trace.
        self._outcome = ""
        # This engine call has made a token.
        self._flowing = False
        bulk = is_bulk(task_class(request.priority))
        self._watch = SilenceWatch(place.silence.first_token_of(request.model, bulk=bulk), place.silence.gap_s)

    @property
    def over(self) -> bool:
        """The terminal event is out, or on its way, or another worker's to make."""
        return self.state in ("moved", "finished", "failed", "cancelled")

    @property
    def call_told(self) -> EarlierCall:
        """This worker's engine call, as far as readers know of it."""
        return EarlierCall(self._place.worker, self._epoch if self._started else 0)

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
        self._epoch = place.new_epoch(self.task.copy.attempt if self.task is not None else 1)
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
        place.doubt()
        self._note_failure(error)
        self._gave_up(error)

    def cut(self, why: str) -> None:
        """Ends an answer that has begun with what there is of it. One without a token goes on to its first: an answer is never
        empty for this."""
        call = self._call
        if self.over or call is None or not self._flowing:
            return
        call.abort()
        self._place.metrics.truncated.labels(why).inc()
        _log.warning("answer_truncated", generation=self.id, reason=why, trace=self._context.trace_id)
        self._numbering.cut(why, choices_of(self.request))
        prompt = estimated_prompt(self.request)
        self.ended(common_pb2.Usage(prompt_tokens=prompt, completion_tokens=self._numbering.tokens, estimated=True))

    def _call_engine(self, so_far: ChoiceSoFar | None) -> None:
        self._place.turns.began(self.request)
        self._place.retries.began(self.request.model, self.task.copy if self.task is not None else None)
        self._call_hop = self._begin_call_hop(so_far)
        token = current.set(replace(self._context, span_id=self._call_hop.context.span_id))
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
        """The engine call is of no use any more."""
        if self._flowing or self.task is None or self._on_failed is None:
            self.stop(error)
            return
        if self._call is not None:
            self._call.abort()
            self._call = None
        self._call_over(error.name)
        self._on_failed(self, error)

    def leave(self) -> None:
        """It is being given to another worker; `stay` if that fails."""
        self.state = "moved"
        self._hop.mark("leaves")

    def left(self) -> None:
        """Another worker has it now."""
        self._hop.end("moved")

    def stay(self) -> None:
        """Nobody else has it."""
        self.state = "running"

    def stop(self, error: StreamwayError) -> None:
        """Aborts the engine call, if there is one, and ends with `error`."""
        if self.state == "moved" and isinstance(error, Cancelled):
            self.withdrawn = error
        if self.over:
            return
        if self._call is not None:
            self._call.abort()
        self._numbering.failed(to_status(error))
        self._outcome = error.name
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
        added = self._place.memory.keep(transcript, events, self._place.clock.monotonic())
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
        numbering.started(self._epoch, self._place.worker, int(self._waited_s() * 1000))
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
            self._note_first_token()
            self._place.metrics.first_token.observe(waited_s, self._hop.exemplar)
            self._place.pace.first_tokens.note(self.request.model, waited_s, self._first_at)
            if self._called_at:
                self._place.concurrency.first_token(self._first_at - self._called_at)
            numbering.piece(choice, text, raw_delta, finish_reason, token_ids)
            self._place.flusher.now(self)
            return
        numbering.piece(choice, text, raw_delta, finish_reason, token_ids)
        self._gathered()

    def several(self, choice: int, texts: Sequence[str]) -> None:
        """Chunks that came together. Per-token path."""
        if not self._flowing:
            first, *texts = texts
            self.piece(choice, first)
            if self.over:
                return
        self._watch.spoke = True
        self._numbering.several(choice, texts)
        self._gathered()

    def _gathered(self) -> None:
        if self._numbering.pending_units >= self._place.flush_units:
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
            self._place.till.take(self.request, usage)
        self._numbering.finished(usage)
        self._outcome = "finished"
        if self._call_hop is not None:
            first_s = self._first_at - self._called_at if self._first_at and self._called_at else None
            self._call_hop.tell(hop_facts.of_end(usage, self._numbering.finish_reason, first_s))
        self._end("finished")
        if usage is None or not usage.estimated:
            self._place.turns.finished(self.request, self.transcript, usage)

    def failed(self, error: StreamwayError) -> None:
        """The engine refused or broke."""
        self._call = None
        self._note_failure(error)
        if isinstance(error, RETRIED):
            self._gave_up(error)
        else:
            self.stop(error)

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
            if self._numbering.units > 1:
                pace_s = (now - self._first_at) / (self._numbering.units - 1)
                self._place.metrics.token_time.observe(pace_s, self._hop.exemplar)
            self._place.pace.ended(self._first_at - self._called_at, now - self._called_at, uncached)

    def _note_failure(self, error: StreamwayError) -> None:
        if isinstance(error, EngineOverloaded) and error.retry_after_s is not None:
            self._place.rest(error.retry_after_s)
        self._place.metrics.engine_errors.labels(error.name).inc()
        _log.warning("engine_call_failed", generation=self.id, reason=error.name, trace=self._context.trace_id)

    def _begin_call_hop(self, so_far: ChoiceSoFar | None) -> Hop:
        """Of this engine call; it goes on with what earlier ones of the same generation have made."""
        place, info, here = self._place, self._place.backend.info(), self._context
        links = [trace_of_call(here, self.id, epoch) for epoch in self._earlier_epochs() if epoch]
        context = replace(here, span_id=span_of_call(self.id, self._epoch), parent=here.span_id)
        facts = hop_facts.of_call(self.request, info, continues=so_far is not None)
        name = hop_facts.name_of_call(self.request)
        return place.hops.begin(name, context, self.id, kind="client", facts=facts, links=links)

    def _earlier_epochs(self) -> list[int]:
        """Of engine calls that came before this one, as far as they are known here."""
        return [call.epoch for call in self.task.copy.before] if self.task is not None else []

    def _note_first_token(self) -> None:
        self._hop.mark("first_token")
        if self._call_hop is not None:
            self._call_hop.mark("first_token")

    def _call_over(self, outcome: str) -> None:
        """This engine call, or what there was of it."""
        call, self._call_hop = self._call_hop, None
        if call is None:
            return
        exemplar = call.exemplar
        call.end(outcome)
        self._place.metrics.inference.labels(prompt_type(self.request)).observe(call.ended - call.began, exemplar)

    def _note_end(self) -> None:
        outcome = self._outcome or self.state
        self._call_over(outcome)
        self._hop.end(outcome)
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
