"""Performs what the window decides: the one place that starts and ends generations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from services.inference_adapter.core.memory import Gone
from services.inference_adapter.core.taking import taken_from
from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.core.window import Window
from services.inference_adapter.core.window_events import (
    Crowded,
    Drop,
    Effect,
    Ended,
    Paused,
    Resized,
    Return,
    Start,
    Taken,
    Tick,
    Withdrawn,
)
from services.inference_adapter.io.books import Books
from services.inference_adapter.io.dismissals import Dismissals
from services.inference_adapter.io.fanout.directory import Directory
from services.inference_adapter.io.generation import Generation
from services.inference_adapter.io.journaled import JournaledGeneration
from services.inference_adapter.io.journaling import Journaling, place_of
from services.inference_adapter.io.making import GenerationMaker
from services.inference_adapter.io.retrying import Retrying
from services.inference_adapter.io.room import Room
from services.inference_adapter.io.workplace import Workplace
from streamway.errors import (
    Cancelled,
    DeadlineExceeded,
    EventsExpired,
    GoingAway,
    QueueFull,
    QueueTimeout,
    StreamwayError,
)
from streamway.lanes import TakenTask
from streamway.telemetry.tracing import calling
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import Durability, OnDisconnect

_log = structlog.get_logger("adapter")

# Tasks that came past the lanes, which hold what the window does not, wait in the window itself: so many at most.
_MOST_INLINE: Final = 1000
_RETRY_S: Final = 1.0


class Worker:
    """All generations that were taken and have not ended.

    `resume_grace_s`: how long one may go on without a live reader whose client may come back; `orphan_grace_s`: any other, since
    its reader's process may have been lost without a word. `memory_short` says at a time whether answers must be cut.
    `queue_timeout_s`: how long one may wait, from acceptance on; a cancel that comes before its task is remembered as long.
    """

    def __init__(
        self,
        place: Workplace,
        window: Window,
        directory: Directory,
        books: Books,
        dismissals: Dismissals,
        journaling: Journaling,
        *,
        memory_short: Callable[[float], bool],
        queue_timeout_s: float,
        resume_grace_s: float,
        orphan_grace_s: float,
    ) -> None:
        self._place = place
        self._window = window
        self._directory = directory
        self._books = books
        self._dismissals = dismissals
        self._journaling = journaling
        self._maker = GenerationMaker(
            place,
            journaling,
            on_idle=self._idle,
            on_waiting=self._back,
            on_end=self._ended,
            on_failed=Retrying(place.retries, journaling, books, place.memory, self._moved).begin,
            on_left=self._left,
        )
        self._memory_short = memory_short
        self._queue_timeout_s = queue_timeout_s
        self._resume_grace_s = resume_grace_s
        self._orphan_grace_s = orphan_grace_s
        self._generations: dict[str, Generation] = {}
        # How each stands in the window.
        self._places: dict[str, Taken] = {}
        self.room = Room(window)

    @property
    def window(self) -> Window:
        """How full it is; not to be changed from outside."""
        return self._window

    def traceparent(self, sent: str) -> str:
        """The trace context of a generation that came with a call of its own."""
        return calling(sent) if self._place.hops.recording else sent

    @property
    def live(self) -> int:
        """Generations with a live reader."""
        return sum(1 for generation in self._generations.values() if generation.transcript.live)

    @property
    def tokens(self) -> int:
        """Estimated tokens of everything in the window."""
        return sum(generation.tokens for generation in self._generations.values())

    def has_too_much(self, tenant: str) -> bool:
        """More of the tenant is kept here than it may have buffered, and none of it can be dropped."""
        return self._place.memory.over(tenant)

    @property
    def tasks(self) -> list[TakenTask]:
        """The tasks whose leases must be renewed."""
        return [task for generation in self._generations.values() for task in generation.tasks]

    @property
    def idle(self) -> bool:
        """Nothing is here any more, nothing waits for the store."""
        return not self._generations

    def knows(self, task: TakenTask) -> bool:
        """True for a task that is being worked on, or done and not acknowledged yet."""
        generation = self._generations.get(task.copy.generation)
        return self._books.finishing(task) or (generation is not None and task in generation.tasks)

    def admit(
        self,
        request: common_pb2.GenerationRequest,
        created_unix: float,
        task: TakenTask | None,
        prepare: Callable[[Generation], None] | None = None,
        refusal: StreamwayError | None = None,
    ) -> Generation | None:
        """Takes a request on, from a lane or (`task` None) directly. None when it needs no work: a second copy of something
        known, cancelled before it was read, or refused. `prepare` is called before anything starts.
        """
        now, place = self._place.clock.monotonic(), self._place
        id_ = request.generation
        journaled = task is not None and request.durability != Durability.DURABILITY_OFF
        if not journaled and place.memory.exhume(id_, request.tenant):
            self._dismissals.refuse(id_, request.tenant, Cancelled(), task)
            return None
        if self._is_known(id_, task, request.model, journaled=journaled):
            return None
        unix = place.clock.unix()
        if refusal is not None or (task is not None and task.copy.attempt > 1):
            # It waited when it was accepted; now it waits for the first time here.
            created_unix = unix
        generation = self._maker.make(request, now - max(0.0, unix - created_unix), task, journaled=journaled)
        self._generations[id_] = generation
        if prepare is not None:
            prepare(generation)
        self._directory.appeared(generation.transcript)
        if journaled and place.memory.exhume(id_, request.tenant):
            refusal = Cancelled()
        if refusal is not None:
            # Its end must be in its channel, or a resume would wait for ever.
            generation.stop(refusal)
            return None
        taken = taken_from(
            request,
            task,
            worker=place.worker,
            tokens=generation.tokens,
            expires_at=now + created_unix + self._queue_timeout_s - unix,
            clock_ahead_s=now - unix,
            first_token_s=place.pace.least_first_token_s,
        )
        self._places[id_] = taken
        if taken.movable and not taken.broken_off and self.has_too_much(request.tenant):
            # All of the tenant's that can be dropped has been: its new work is for a worker with room for it.
            self._perform([Return(id_)])
        else:
            self._perform(self._window.receive(taken, now))
        return generation

    def run_inline(self, request: common_pb2.GenerationRequest, created_unix: float) -> None:
        """Takes a request on that could not go through a lane: it has no channel either."""
        wanted = common_pb2.GenerationRequest()
        wanted.CopyFrom(request)
        wanted.durability = Durability.DURABILITY_OFF
        id_ = wanted.generation
        if self._window.waiting >= _MOST_INLINE and self._place.memory.find(id_) is None:
            self._dismissals.tell(id_, wanted.tenant, QueueFull(wanted.model, _RETRY_S))
        else:
            self.admit(wanted, created_unix, None)

    def cancel(self, id_: str, tenant: str | None, by: str = "the client") -> None:
        """Ends a generation of `tenant` (None: anybody's) wherever it is; one that is not known yet as soon as it comes."""
        generation = self._generations.get(id_)
        if generation is not None:
            if tenant in (None, generation.request.tenant):
                self._withdraw(generation, Cancelled(by), "cancelled")
            return
        memory = self._place.memory
        found = memory.find(id_)
        if found is Gone.MOVED:
            # Whoever asks has not heard of it.
            self._journaling.spawn(self._journaling.end_moved(id_, tenant, Cancelled(by)), "cancel")
        if found is not None:
            return
        memory.bury(id_, tenant, self._place.clock.monotonic() + self._queue_timeout_s)
        if tenant is None:
            # Who waits for it is told now; the task is dropped when it is read.
            self._dismissals.tell(id_, "", Cancelled(by))

    def answered(self, id_: str) -> None:
        """The channel of a generation has an answer that is not ours: nothing is made of it here, and its readers go there."""
        generation, now = self._generations.get(id_), self._place.clock.monotonic()
        if isinstance(generation, JournaledGeneration):
            generation.overtaken()
        elif generation is None and self._place.memory.find(id_) is None:
            # Its task is still in the lane: it is dropped when it is read, and nobody waits for that.
            self._place.memory.bury(id_, None, now + self._queue_timeout_s)
            self._place.memory.mark_gone(id_, Gone.MOVED)
            self._directory.will_not_come(id_, EventsExpired(id_))

    def left(self, generation: Generation) -> None:
        """The one reader of a direct call has gone; what has not ended is cancelled."""
        if not generation.over:
            self._withdraw(generation, Cancelled(), "cancelled")

    def pause(self, yes: bool) -> None:
        """The engine cannot take work, or can again."""
        self._perform(self._window.receive(Paused(yes), self._place.clock.monotonic()))

    def crowd(self, yes: bool) -> None:
        """The KV cache is too full for another prefill, or has room again."""
        self._perform(self._window.receive(Crowded(yes), self._place.clock.monotonic()))

    def resize(self, slots: int) -> None:
        """So many may run at the engine from now on."""
        self._perform(self._window.receive(Resized(slots), self._place.clock.monotonic()))

    def tick(self) -> None:
        """Ends what is late and what nobody reads."""
        now = self._place.clock.monotonic()
        self._perform(self._window.receive(Tick(), now))
        short = bool(self._generations) and self._memory_short(now)
        for generation in list(self._generations.values()):
            generation.tick(now)
            if short:
                generation.cut("memory")
            transcript = generation.transcript
            if generation.over or transcript.live:
                continue
            unread = generation.request.on_disconnect == OnDisconnect.ON_DISCONNECT_CONTINUE
            if unread and generation.journaled:
                # Its deadline ends it; what it says can be had from its channel.
                continue
            grace = unread or generation.request.on_disconnect == OnDisconnect.ON_DISCONNECT_GRACE
            grace_s = self._resume_grace_s if grace else self._orphan_grace_s
            if now - transcript.unread_since >= grace_s:
                self._withdraw(generation, Cancelled(f"its worker: nobody read it for {grace_s:g} s"), "orphan")
        self._place.memory.sweep(now)

    def end_all(self) -> None:
        """Ends everything, or gives it to other workers: the process goes away."""
        self.pause(True)
        for generation in list(self._generations.values()):
            if isinstance(generation, JournaledGeneration):
                generation.move()
            elif not generation.over:
                self._withdraw(generation, GoingAway("worker"), "going_away")

    def _withdraw(self, generation: Generation, error: StreamwayError, reason: str) -> None:
        now = self._place.clock.monotonic()
        self._perform(self._window.receive(Withdrawn(generation.id), now), error, reason)
        # One that never got into the window, since its admission failed half way, ends here.
        generation.stop(error)

    def _perform(self, effects: list[Effect], error: StreamwayError | None = None, reason: str = "") -> None:
        """`error` and `reason` are why something was withdrawn."""
        for effect in effects:
            generation = self._generations.get(effect.id)
            if generation is None:
                continue
            match effect:
                case Start():
                    if not generation.journaled:
                        self._note_state(generation, "running")
                    generation.run()
                case Return():
                    assert isinstance(generation, JournaledGeneration), "others are not movable"
                    self._place.metrics.degraded.inc()
                    generation.give_back()
                case Drop():
                    if effect.reason == "withdrawn" and error is not None:
                        why, label = error, reason
                    else:
                        why, label = _late(effect, self._queue_timeout_s), effect.reason
                    self._place.metrics.cancels.labels(effect.stage, label).inc()
                    generation.stop(why)
        self.room.freed()

    def _is_known(self, id_: str, task: TakenTask | None, model: str, *, journaled: bool) -> bool:
        """True for a generation that needs no new engine call here; then the copy is dealt with."""
        found = self._place.memory.find(id_)
        if not journaled:
            if found is not None and task is not None:
                self._books.finish(task)
            return found is not None
        assert task is not None
        present = self._generations.get(id_)
        if isinstance(present, JournaledGeneration):
            present.hold(task)
            return True
        if isinstance(found, Transcript):
            if found.journaled:
                # It has ended here: its channel says what is right.
                self._journaling.spawn(self._journaling.settle(task.copy, place_of(task), model, mine=False), "settle")
                return True
            # All there is of it is that it was cancelled before it came.
            self._place.memory.forget(found, Gone.EXPIRED)
        return False

    def _ended(self, generation: Generation) -> None:
        del self._generations[generation.id]
        self._note_state(generation, generation.state)
        if generation.task is not None:
            self._books.finish(generation.task)
        self._idle(generation)

    def _moved(self, generation: Generation) -> None:
        """One without a channel is another worker's now."""
        del self._generations[generation.id]
        self._idle(generation)

    def _back(self, generation: Generation) -> None:
        """It waits for the store: its slot is the next one's, and it stands in line again."""
        now = self._place.clock.monotonic()
        self._perform(self._window.receive(Ended(generation.id, used_tokens=0), now))
        self._perform(self._window.receive(self._places[generation.id], now))

    def _idle(self, generation: Generation) -> None:
        # Of what the window dropped itself it knows nothing any more.
        self._places.pop(generation.id, None)
        ended = Ended(generation.id, generation.used_tokens)
        self._perform(self._window.receive(ended, self._place.clock.monotonic()))

    def _left(self, generation: Generation) -> None:
        """A journaled one is off our hands: its other copies are of no use, or the next attempt came here."""
        del self._generations[generation.id]
        assert isinstance(generation, JournaledGeneration)
        for task in generation.held:
            if generation.channel_ended:
                model = generation.request.model
                self._journaling.spawn(self._journaling.settle(task.copy, place_of(task), model, mine=False), "settle")
            else:
                self.admit(generation.request, self._place.clock.unix(), task)

    def _note_state(self, generation: Generation, state: str) -> None:
        # Only what came through a lane has a record.
        if generation.task is not None:
            self._books.state(generation.id, state)


def _late(drop: Drop, queue_timeout_s: float) -> StreamwayError:
    if drop.reason == "queue_timeout":
        return QueueTimeout(queue_timeout_s)
    return DeadlineExceeded("it waited in the queue" if drop.stage == "waiting" else "the engine worked on it")
