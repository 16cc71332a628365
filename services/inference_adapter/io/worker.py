"""Performs what the window decides: the one place that starts and ends generations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from services.inference_adapter.core.estimate import estimated_tokens
from services.inference_adapter.core.memory import Gone, Transcript
from services.inference_adapter.core.numbering import Numbering
from services.inference_adapter.core.window import Drop, Effect, Ended, Paused, Start, Taken, Tick, Window, Withdrawn
from services.inference_adapter.io.books import Books
from services.inference_adapter.io.fanout.directory import Directory
from services.inference_adapter.io.generation import Generation, Workplace
from streamway.errors import Cancelled, DeadlineExceeded, GoingAway, QueueTimeout, StreamwayError, to_status
from streamway.lanes import TakenTask
from streamway.telemetry.context import begin
from streamway.v1 import common_pb2
from streamway.valkey import keys

_log = structlog.get_logger("adapter")

_NEVER: Final = float("inf")


class Worker:
    """All generations that were taken and have not ended.

    `orphan_grace_s`: how long one may go on without a live reader. `queue_timeout_s`: how long one may wait, from acceptance on;
    a cancel that comes before its task is remembered as long.
    """

    def __init__(
        self,
        place: Workplace,
        window: Window,
        directory: Directory,
        books: Books,
        *,
        queue_timeout_s: float,
        orphan_grace_s: float,
    ) -> None:
        self._place = place
        self._window = window
        self._directory = directory
        self._books = books
        self._queue_timeout_s = queue_timeout_s
        self._orphan_grace_s = orphan_grace_s
        self._generations: dict[str, Generation] = {}
        # Set when room may have come free; and who waits for what a read of the lanes has set aside.
        self._room = asyncio.Event()
        self._callers = 0

    @property
    def window(self) -> Window:
        """How full it is; not to be changed from outside, `reserve` and `release` aside."""
        return self._window

    @property
    def live(self) -> int:
        """Generations with a live reader."""
        return sum(1 for generation in self._generations.values() if generation.transcript.live)

    @property
    def tokens(self) -> int:
        """Estimated tokens of everything in the window."""
        return sum(generation.tokens for generation in self._generations.values())

    @property
    def tasks(self) -> list[TakenTask]:
        """The tasks whose leases must be renewed."""
        return [generation.task for generation in self._generations.values() if generation.task is not None]

    async def room(self) -> int:
        """Waits until something may be taken from the lanes; returns how much."""
        while (free := self._window.unreserved - self._callers) <= 0:
            self._room.clear()
            await self._room.wait()
        return free

    async def room_for_call(self) -> bool:
        """True when a direct call may be admitted now, without another wait in between.

        Room that a read of the lanes has set aside is waited for, a matter of a millisecond: most reads bring nothing.
        """
        self._callers += 1
        try:
            while self._window.free and not self._window.unreserved:
                self._room.clear()
                await self._room.wait()
            return self._window.free > 0
        finally:
            self._callers -= 1
            self._room.set()

    def release(self, granted: int) -> None:
        """Gives reserved room back."""
        self._window.release(granted)
        self._room.set()

    def knows(self, task: TakenTask) -> bool:
        """True for a task that is being worked on, or done and not acknowledged yet."""
        generation = self._generations.get(task.copy.generation)
        return self._books.finishing(task) or (generation is not None and generation.task == task)

    def admit(
        self,
        request: common_pb2.GenerationRequest,
        created_unix: float,
        task: TakenTask | None,
        prepare: Callable[[Generation], None] | None = None,
    ) -> Generation | None:
        """Takes a request on, from a lane or (`task` None) directly. None when it needs no work: a second copy of something
        known, or cancelled before it was read. `prepare` is called before anything starts.
        """
        now, place = self._place.clock.monotonic(), self._place
        id_ = request.generation
        if place.memory.exhume(id_, request.tenant):
            self._refuse(id_, request.tenant, Cancelled(), task)
            return None
        if place.memory.find(id_) is not None:
            if task is not None:
                self._books.finish(task)
            return None
        transcript = place.memory.open(id_, request.tenant, now)
        context = begin(request.traceparent, generation=id_, model=request.model, tenant=request.tenant)
        unix = place.clock.unix()
        generation = Generation(
            request,
            transcript,
            place,
            context,
            created_at=now - max(0.0, unix - created_unix),
            task=task,
            tokens=estimated_tokens(request),
            on_end=self._ended,
        )
        self._generations[id_] = generation
        if prepare is not None:
            prepare(generation)
        self._directory.appeared(transcript)
        class_ = task.class_ if task is not None else keys.task_class(request.priority)
        taken = Taken(
            id_,
            rank=keys.CLASSES.index(class_),
            priority=request.priority,
            expires_at=now + created_unix + self._queue_timeout_s - unix,
            deadline_at=now + request.deadline_unix_ms / 1000 - unix if request.deadline_unix_ms else _NEVER,
        )
        self._perform(self._window.receive(taken, now))
        return generation

    def lose(self, task: TakenTask) -> None:
        """Gives up a task whose engine call ran in an earlier life of this worker."""
        self._books.state(task.copy.generation, "failed")
        self._books.finish(task)
        self.lost(task.copy.generation)

    def lost(self, id_: str) -> None:
        """Tells who waits for a generation, and who will ask, that it was an earlier life's; nothing if it is here after all."""
        if self._place.memory.find(id_) is None:
            _log.warning("generation_lost", generation=id_)
            self._place.memory.mark_gone(id_, Gone.LOST)
            self._directory.lost(id_)

    @property
    def awaited(self) -> list[str]:
        """Generations that readers wait for and no task has brought yet."""
        return self._directory.waiting

    def refuse(self, task: TakenTask, error: StreamwayError, tenant: str = "") -> None:
        """Ends a task that cannot be run."""
        self._refuse(task.copy.generation, tenant, error, task)

    def cancel(self, id_: str, tenant: str | None, by: str = "the client") -> None:
        """Ends a generation of `tenant` (None: anybody's) wherever it is; one that is not known yet as soon as it comes."""
        generation = self._generations.get(id_)
        if generation is not None:
            if tenant in (None, generation.request.tenant):
                self._withdraw(generation, Cancelled(by), "cancelled")
            return
        memory = self._place.memory
        if memory.find(id_) is not None:
            return
        memory.bury(id_, tenant, self._place.clock.monotonic() + self._queue_timeout_s)
        if tenant is None:
            # Who waits for it is told now; the task is dropped when it is read.
            self._told_end(id_, "", Cancelled(by))

    def left(self, generation: Generation) -> None:
        """The one reader of a direct call has gone; what has not ended is cancelled."""
        if not generation.over:
            self._withdraw(generation, Cancelled(), "cancelled")

    def pause(self, yes: bool) -> None:
        """The engine cannot take work, or can again."""
        self._perform(self._window.receive(Paused(yes), self._place.clock.monotonic()))

    def tick(self) -> None:
        """Ends what is late and what nobody reads."""
        now = self._place.clock.monotonic()
        self._perform(self._window.receive(Tick(), now))
        for generation in list(self._generations.values()):
            transcript = generation.transcript
            if not transcript.live and now - transcript.unread_since >= self._orphan_grace_s:
                self._withdraw(
                    generation, Cancelled(f"its worker: nobody read it for {self._orphan_grace_s:g} s"), "orphan"
                )
        self._place.memory.sweep(now)

    def end_all(self) -> None:
        """Ends everything: the process goes away."""
        self.pause(True)
        for generation in list(self._generations.values()):
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
                    self._note_state(generation, "running")
                    generation.run()
                case Drop():
                    if effect.reason == "withdrawn" and error is not None:
                        why, label = error, reason
                    else:
                        why, label = _late(effect, self._queue_timeout_s), effect.reason
                    self._place.metrics.cancels.labels(effect.stage, label).inc()
                    generation.stop(why)
        self._room.set()

    def _ended(self, generation: Generation) -> None:
        del self._generations[generation.id]
        self._note_state(generation, generation.state)
        if generation.task is not None:
            self._books.finish(generation.task)
        # Of what the window dropped itself it knows nothing any more.
        self._perform(self._window.receive(Ended(generation.id), self._place.clock.monotonic()))

    def _note_state(self, generation: Generation, state: str) -> None:
        # Only what came through a lane has a record.
        if generation.task is not None:
            self._books.state(generation.id, state)

    def _refuse(self, id_: str, tenant: str, error: StreamwayError, task: TakenTask | None) -> None:
        if task is not None:
            self._books.state(id_, "cancelled" if isinstance(error, Cancelled) else "failed")
            self._books.finish(task)
        if self._place.memory.find(id_) is None:
            self._told_end(id_, tenant, error)

    def _told_end(self, id_: str, tenant: str, error: StreamwayError) -> Transcript:
        """A transcript of nothing but an error, for whoever waits or asks."""
        now = self._place.clock.monotonic()
        transcript = self._place.memory.open(id_, tenant, now)
        numbering = Numbering()
        numbering.failed(to_status(error))
        self._place.memory.append(transcript, numbering.take())
        self._place.memory.end(transcript, now)
        self._directory.appeared(transcript)
        return transcript


def _late(drop: Drop, queue_timeout_s: float) -> StreamwayError:
    if drop.reason == "queue_timeout":
        return QueueTimeout(queue_timeout_s)
    return DeadlineExceeded("it waited in the queue" if drop.stage == "waiting" else "the engine worked on it")
