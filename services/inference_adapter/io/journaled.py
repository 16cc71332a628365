"""A generation with a response channel: its events go into the channel before they go to readers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Set
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.core.continuation import Complete, Continue, Decision, Refuse, judge, made_tokens
from services.inference_adapter.core.estimate import estimated_prompt
from services.inference_adapter.core.transcribing import transcribe
from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.core.wire import framed
from services.inference_adapter.io.delivery import Delivery
from services.inference_adapter.io.generation import Generation, State
from services.inference_adapter.io.journaling import Journaling
from services.inference_adapter.io.leaving import PATIENCE_S, Leaving
from services.inference_adapter.io.phase import Phase
from services.inference_adapter.io.retries import RETRIED
from services.inference_adapter.io.workplace import Workplace
from streamway.errors import (
    ContextLengthExceeded,
    EngineRejected,
    EventsExpired,
    GoingAway,
    Internal,
    StoreUnavailable,
    StreamwayError,
    TakeoverUnsupported,
)
from streamway.journal import Begun, Kind, Stale, StopReason, Writing, rebuild
from streamway.journal.answer import ChoiceSoFar
from streamway.lanes import TakenTask
from streamway.models.abilities import Ability
from streamway.telemetry.context import RequestContext
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import Durability
from streamway.valkey.session import Session

_log = structlog.get_logger("adapter")

# So much of an answer may wait for a silent store; of more the task is left to whoever reaches it.
_MOST_UNCONFIRMED_BYTES: Final = 8_388_608

# On the per-token path a name of the module costs less than one of an enum.
_ENDING: Final = Phase.ENDING
_END: Final = Kind.END
_TOKENS: Final = Kind.TOKENS


class JournaledGeneration(Generation):
    """One engine call of a generation with a response channel.

    `on_idle` is called when the engine has nothing more to do, `on_end` when the task copy is off this worker's hands too, and
    `on_waiting` when the store takes so long that its slot is somebody else's in the meantime: it must get another `run`.
    `held` are other copies of the task that were read meanwhile; `channel_ended` says that they are of no use any more.
    """

    journaled = True

    __slots__ = (
        "_alone",
        "_before",
        "_decided",
        "_delivery",
        "_from_worker",
        "_journaling",
        "_leaving",
        "_moving",
        "_on_idle",
        "_on_waiting",
        "_overtaken",
        "_phase",
        "_seated_at",
        "_stopped_at",
        "_stopping",
        "_taken",
        "_tokens_before",
        "_tried",
        "_writing",
        "channel_ended",
        "held",
    )

    def __init__(
        self,
        request: common_pb2.GenerationRequest,
        transcript: Transcript,
        place: Workplace,
        context: RequestContext,
        journaling: Journaling,
        *,
        created_at: float,
        task: TakenTask,
        tokens: int,
        on_idle: Callable[[Generation], None],
        on_waiting: Callable[[Generation], None],
        on_end: Callable[[Generation], None],
    ) -> None:
        super().__init__(
            request, transcript, place, context, created_at=created_at, task=task, tokens=tokens, on_end=on_end
        )
        self._journaling = journaling
        self._taken = task
        self._on_idle = on_idle
        self._on_waiting = on_waiting
        self._delivery = Delivery(
            transcript,
            place.memory,
            place.clock,
            place.metrics,
            strict=request.durability == Durability.DURABILITY_STRICT,
            on_stopped=self._stopped,
            on_finished=self._finished,
        )
        self._leaving = Leaving(journaling, self._delivery, task, request.model)
        self._writing: Writing | None = None
        # The store has lost the channel, and the answer goes on without one.
        self._alone = False
        self._phase = Phase.QUEUED
        # Since when it has had a slot; None while it has none. And what waits for one, once it has begun.
        self._seated_at: float | None = None
        self._decided: tuple[Begun, Decision] | None = None
        # Why it ends without an engine call, and since when its readers wait for that.
        self._stopping: StreamwayError | None = None
        self._stopped_at = 0.0
        self._moving = False
        # The channel has been given an answer since this call was on its way to begin.
        self._overtaken = False
        # Whose answer this engine call goes on with; empty for one from the beginning.
        self._from_worker = ""
        self._tokens_before = 0
        # Who has begun it, this worker too.
        self._tried: Set[str] = frozenset()
        # Epochs of the engine calls before this one.
        self._before: list[int] = []
        self.held: list[TakenTask] = []
        self.channel_ended = False

    @property
    def over(self) -> bool:
        return self._stopping is not None or self._phase in (Phase.ENDING, Phase.LEAVING, Phase.GONE)

    @property
    def tasks(self) -> list[TakenTask]:
        """Every copy of the task that this worker holds."""
        return [self._taken, *self.held]

    def hold(self, task: TakenTask) -> None:
        """Another copy was read. What becomes of it is decided when this call is over: until then this one writes."""
        if task.copy.ref == self._taken.copy.ref and self._writing is not None and self._writing.channel.running:
            self._writing.copy_seen(task.lane, task.entry)
        if task not in self.held:
            self.held.append(task)

    def run(self) -> None:
        if self.state == "queued":
            self.state = "running"
            self._place.metrics.queue_wait.observe(self._waited_s())
        self._seated_at = self._place.clock.monotonic()
        if self._decided is not None:
            self._phase = Phase.RUNNING
            decided, self._decided = self._decided, None
            self._go_on(*decided)
        else:
            self._begin()

    def stop(self, error: StreamwayError) -> None:
        """Ends with `error`, in the channel too: before the engine call has begun, as soon as it has."""
        if self._phase is Phase.LEAVING:
            self._leaving.cancel(error)
        if self.over:
            return
        if self._phase in (Phase.BEGUN, Phase.RUNNING):
            super().stop(error)
            return
        self._stopping = error
        self._stopped_at = self._place.clock.monotonic()
        self._begin()

    def give_back(self) -> None:
        """Lets any worker of the model have a task that has not begun: it has waited too long here."""
        if not self.over and self._phase is Phase.QUEUED:
            self._leave_by(self._leaving.by_passing_on(degraded=True), GoingAway("worker"))

    def move(self) -> None:
        """Gives the task to another worker: this one goes away."""
        if self.over:
            return
        if self._phase is Phase.QUEUED:
            self._leave_by(self._leaving.by_passing_on(), GoingAway("worker"))
        elif self._phase in (Phase.BEGUN, Phase.RUNNING):
            self._hand_over(GoingAway("worker"))
        else:
            self._moving = True

    def overtaken(self) -> None:
        """The channel has an answer that is not this call's."""
        if self._phase is Phase.BEGINNING:
            self._overtaken = True
        elif not self.over:
            self._place.metrics.handovers.labels("overtaken").inc()
            self._let_go()

    def tick(self, now: float) -> None:
        if self._phase is Phase.BEGINNING:
            if self._stopping is not None and now - self._stopped_at >= PATIENCE_S:
                self._delivery.tell(self._stopping, forget=False)
            elif self._stopping is None and self._seated_at is not None and now - self._seated_at >= PATIENCE_S:
                # The store is away. Others may have something that needs no store.
                self._seated_at = None
                self._on_waiting(self)
        elif self._phase is Phase.RUNNING and self._starved():
            self._hand_over(StoreUnavailable(waited=True))
        super().tick(now)

    def _starved(self) -> bool:
        """The store has been silent for longer than this one can stand."""
        delivery, writing = self._delivery, self._writing
        if delivery.unanswered_since is None or writing is None or self._alone:
            return False
        waits = writing.channel.unconfirmed_bytes
        return delivery.held_back_s >= self._journaling.strict_pause_s or waits > _MOST_UNCONFIRMED_BYTES

    def flush(self) -> tuple[int, int]:
        self._marked = False
        numbering, writing = self._numbering, self._writing
        units = numbering.pending_units
        events = numbering.take()
        if not events or writing is None:
            return 0, 0
        last = numbering.position
        payload = framed(events[0][1]) if len(events) == 1 else b"".join([framed(raw) for _, raw in events])
        self._delivery.put(events)
        if self._alone:
            if self._phase is _ENDING:
                self._part(self._end_alone(), EventsExpired(self.id))
            return units, len(events)
        writing.append(_END if self._phase is _ENDING else _TOKENS, last, payload)
        return units, len(events)

    # --- EngineSink ---------------------------------------------------------------------------------------------------

    def started(self) -> None:
        """The begin has told it."""

    def failed(self, error: StreamwayError) -> None:
        """The engine refused, which is the answer; or broke, and another one may go on."""
        if self.over:
            return
        if isinstance(error, RETRIED):
            self._note_failure(error)
            self._gave_up(error)
        elif self._from_worker and isinstance(error, ContextLengthExceeded):
            # The answer has filled the context: an engine in one go would have stopped there.
            self._complete("length", self._tokens_before, unsaid=True)
        elif self._from_worker and isinstance(error, EngineRejected):
            self._note_failure(error)
            self._end_with(TakeoverUnsupported(self._from_worker, f"the engine refused it: {error.message}"))
        else:
            super().failed(error)

    # --- Begin --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._phase is Phase.QUEUED:
            self._phase = Phase.BEGINNING
            self._journaling.spawn(self._begin_call(), "begin")

    async def _begin_call(self) -> None:
        started = common_pb2.Started(worker=self._place.worker, queued_ms=int(self._waited_s() * 1000))
        answer = await self._journaling.begin(self._taken, common_pb2.Event(started=started))
        try:
            if isinstance(answer, tuple):
                self._begun(*answer)
                return
            # Nothing to run. A begin of this very copy was an earlier life's, and then it is requeued.
            mine = isinstance(answer, Stale) and answer.ref == self._taken.copy.ref
            _log.info("task_not_begun", generation=self.id, why=type(answer).__name__.lower(), earlier_life=mine)
            way = self._leaving.by_settling(None, mine=mine)
            self._leave_by(way, self._stopping or EventsExpired(self.id))
        except Exception:  # noqa: BLE001 — readers must be told, and the task must not be lost
            _log.exception("begin_failed", generation=self.id)
            self._abort()
            self._leave_by(self._leaving.by_settling(self._writing, mine=True), Internal(self.id))

    def _begun(self, begun: Begun, session: Session) -> None:
        place, transcript = self._place, self.transcript
        begin = begun.begin.begin
        assert begin is not None
        self._phase = Phase.RUNNING
        choices = rebuild(begun.before)
        self._tried = {entry.begin.worker for entry in (*begun.before, begun.begin) if entry.begin is not None}
        self._epoch = begun.epoch
        self._before = [entry.epoch for entry in begun.before if entry.begin is not None]
        self._writing = self._journaling.open(begun, session, self._delivery)
        for task in self.held:
            if task.copy.ref == self._taken.copy.ref:
                self._writing.copy_seen(task.lane, task.entry)
        tokens = {number: made_tokens(choice) for number, choice in choices.items()}
        self._numbering.resume(begun.epoch, begun.begin.last, tokens)
        place.memory.keep(transcript, transcribe((*begun.before, begun.begin)), place.clock.monotonic())
        transcript.line = begin.line
        for reader in transcript.readers[:]:
            reader.seated()
        self._journaling.books.began(self.id, place.worker, begun.epoch)
        if self._stopping is not None:
            self._end_with(self._stopping)
        elif self._overtaken:
            self.overtaken()
        elif self._moving:
            self._hand_over(GoingAway("worker"))
        elif self._seated_at is None:
            self._phase = Phase.BEGUN
            self._decided = begun, self._judge(choices)
        else:
            self._go_on(begun, self._judge(choices))

    def _judge(self, choices: Mapping[int, ChoiceSoFar]) -> Decision:
        """What becomes of the answer that is there already, with this engine."""
        known = self._place.backend.info().capabilities
        return judge(self.request, choices, continues=Ability.CONTINUES not in known.cannot)

    def _go_on(self, begun: Begun, decision: Decision) -> None:
        begin = begun.begin.begin
        if begin is not None and begin.from_worker:
            self._hop.mark("taken_over")
            self._hop.tell({"streamway.from_worker": begin.from_worker})
            label = decision.why.name.lower() if isinstance(decision, Refuse) else type(decision).__name__.lower()
            self._place.metrics.takeovers.labels(label).inc()
            _log.info("taken_over", generation=self.id, how=label, position=begun.begin.last, lost=begin.from_worker)
        match decision:
            case Continue(choice):
                self._from_worker = begin.from_worker if begin is not None else ""
                self._tokens_before = made_tokens(choice)
                self._call_engine(choice)
            case Complete(finish_reason, tokens, unsaid):
                self._complete(finish_reason, tokens, unsaid=unsaid)
            case Refuse(why):
                lost = begin.from_worker if begin is not None else ""
                self._end_with(TakeoverUnsupported(lost, why.value))
            case _:
                self._call_engine(None)

    def _complete(self, finish_reason: str, tokens: int, *, unsaid: bool) -> None:
        """Ends an answer that is whole. `unsaid`: its finish reason too must be told."""
        if unsaid:
            self._numbering.piece(0, "", finish_reason=finish_reason)
        self._numbering.finish_reason = finish_reason
        prompt = estimated_prompt(self.request)
        self.ended(common_pb2.Usage(prompt_tokens=prompt, completion_tokens=tokens, estimated=True))

    # --- End ----------------------------------------------------------------------------------------------------------

    def _end(self, state: State) -> None:
        self.state = state
        self._phase = Phase.ENDING
        self._call = None
        self._delivery.end_position = self._numbering.position
        self._place.flusher.now(self)
        self._note_end()
        self._on_idle(self)

    def _stopped(self, reason: StopReason) -> None:
        """The channel is another's, or gone."""
        if self._phase in (Phase.LEAVING, Phase.GONE):
            return
        _log.warning("channel_lost", generation=self.id, reason=reason.value, epoch=self._numbering.epoch)
        if reason is StopReason.EXPIRED and self._store_restarted and not self._strict:
            self._go_on_alone()
            return
        self._place.metrics.handovers.labels(reason.value).inc()
        self._let_go()

    def _let_go(self) -> None:
        """Nothing of this call is wanted any more; its readers go to the channel at once."""
        self._abort()
        self._leave_by(self._leaving.by_settling(self._writing, mine=False), EventsExpired(self.id))
        self._delivery.tell(EventsExpired(self.id), forget=True)

    @property
    def _strict(self) -> bool:
        return self.request.durability == Durability.DURABILITY_STRICT

    @property
    def _store_restarted(self) -> bool:
        return self._writing is not None and self._writing.reconnected

    def _go_on_alone(self) -> None:
        """The store came back without the channel. Nobody else can have this answer then, and its readers are here.

        A channel that is missing without that has expired, and its call is stopped: it stands for nobody's answer.
        Nothing is written into the channel any more: it must not come back half.
        """
        self._alone = True
        if self._writing is not None:
            self._journaling.close(self._writing)
        self._journaling.books.without_channel(self.request, self._place.worker, self._numbering.epoch)
        ending = self._phase is Phase.ENDING
        self._delivery.go_on_without()
        if ending:
            self._part(self._end_alone(), EventsExpired(self.id))

    async def _end_alone(self) -> None:
        """Drops what is left of the task; its record then says how it ended."""
        await self._leaving.by_settling(self._writing, mine=False)
        self._journaling.books.state(self.id, self.state)

    def _finished(self) -> None:
        """The channel has the end, and the task copy is acknowledged."""
        self.channel_ended = True
        self._journaling.books.state(self.id, self.state)
        self._gone()

    def _end_with(self, error: StreamwayError) -> None:
        """Ends one that has begun, whatever it was to do."""
        self._stopping = None
        super().stop(error)

    def _gave_up(self, error: StreamwayError) -> None:
        """The engine is of no use any more; another worker goes on if there is one."""
        self._abort()
        self._journaling.spawn(self._move_or_fail(error), "move")

    async def _move_or_fail(self, error: StreamwayError) -> None:
        copy, model, line = self._taken.copy, self.request.model, self.transcript.line
        # Before the first token it is a retry, which has a budget and goes to nobody twice; after it there is only takeover.
        retry = not self._flowing and line is not None and line.begins_anew
        try:
            if retry:
                may = not self._doubt and await self._place.retries.granted(error, model, copy, self._tried)
            else:
                await self._journaling.peers.look(model)
                may = self._journaling.may_move(copy, model)
        except (RedisError, OSError):
            may = False
        if self._phase is not Phase.RUNNING:
            return
        if may and not self._doubt:
            self._hand_over(error, self._tried if retry else frozenset())
        else:
            self._end_with(error)

    @property
    def _doubt(self) -> bool:
        """What was delivered without the store must not be told anew in other words."""
        return self._writing is None or self._writing.channel.in_doubt or self._delivery.loose

    def _hand_over(self, error: StreamwayError, but: Set[str] = frozenset()) -> None:
        """Leaves a generation that has begun to another worker that is not in `but`; `error` is why."""
        if self._alone:  # nobody else could go on
            self._end_with(error)
            return
        self._place.metrics.handovers.labels(error.name).inc()
        self._abort()
        self._place.flusher.now(self)
        # Readers get what is confirmed in the meantime; then they look for the next worker.
        # What a drain or a silent store ends says nothing of the task.
        planned = isinstance(error, GoingAway | StoreUnavailable)
        way = self._leaving.by_settling(self._writing, mine=True, planned=planned, but=but)
        # The router's breakers hear of the reason by this alone.
        self._leave_by(way, EventsExpired(self.id, moved=error.name))
        if isinstance(error, StoreUnavailable):
            self._delivery.tell(error, forget=True)

    def _leave_by(self, way: Coroutine[object, object, None], error: StreamwayError) -> None:
        if self._writing is not None:
            self._journaling.close(self._writing)
        self._journaling.books.forget(self.id)
        self._outcome = error.metadata.get("moved", "") or "handed_over"
        self._call_over(self._outcome)
        self._part(way, error)
        self._on_idle(self)

    def _part(self, way: Coroutine[object, object, None], error: StreamwayError) -> None:
        self._phase = Phase.LEAVING
        self._journaling.spawn(self._leave(way, error), "leave")

    async def _leave(self, way: Coroutine[object, object, None], error: StreamwayError) -> None:
        await self._leaving.run(way, error)
        self._gone()

    def _earlier_epochs(self) -> list[int]:
        return self._before

    def _abort(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.abort()

    def _gone(self) -> None:
        self._phase = Phase.GONE
        self._hop.end(self._outcome or "handed_over")
        if self._writing is not None:
            self._journaling.close(self._writing)
        self._on_end(self)
