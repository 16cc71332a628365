"""Tasks that get no engine call, and readers of generations that will not come."""

from __future__ import annotations

import asyncio

import structlog

from services.inference_adapter.core.memory import Gone, Memory
from services.inference_adapter.core.numbering import Numbering
from services.inference_adapter.io.books import Books
from services.inference_adapter.io.fanout.directory import Directory
from streamway.errors import Cancelled, StreamwayError, WorkerLost, to_status
from streamway.lanes import TakenTask
from streamway.runtime.clock import Clock

_log = structlog.get_logger("adapter")


class Dismissals:
    """Tells readers, and has tasks without a channel acknowledged. Those with one are ended in it, by `Worker.admit`."""

    def __init__(self, name: str, memory: Memory, directory: Directory, books: Books, clock: Clock) -> None:
        self._name = name
        self._memory = memory
        self._directory = directory
        self._books = books
        self._clock = clock

    @property
    def awaited(self) -> list[str]:
        """Generations that readers wait for and no task has brought yet."""
        return self._directory.waiting

    @property
    def stranger(self) -> asyncio.Event:
        """Set when somebody waits who has read of a generation elsewhere."""
        return self._directory.stranger

    def seen(self, id_: str) -> int:
        """The last position of those who wait for a generation."""
        return self._directory.seen(id_)

    def lose(self, task: TakenTask) -> None:
        """Gives up a task whose engine call ran in an earlier life of this worker."""
        self._books.state(task.copy.generation, "failed")
        self._books.finish(task)
        self.will_not_come(task.copy.generation, WorkerLost(self._name))

    def will_not_come(self, id_: str, error: StreamwayError) -> None:
        """Tells who waits for a generation that no task will bring it; nothing if it is here after all.

        `WorkerLost` is told to whoever asks later, too.
        """
        if self._memory.find(id_) is not None:
            return
        _log.warning("generation_not_here", generation=id_, reason=error.name)
        if isinstance(error, WorkerLost):
            self._memory.mark_gone(id_, Gone.LOST)
        self._directory.will_not_come(id_, error)

    def refuse(self, id_: str, tenant: str, error: StreamwayError, task: TakenTask | None) -> None:
        """Ends a generation that is not run."""
        if task is not None:
            self._books.state(id_, "cancelled" if isinstance(error, Cancelled) else "failed")
            self._books.finish(task)
        if self._memory.find(id_) is None:
            self.tell(id_, tenant, error)

    def tell(self, id_: str, tenant: str, error: StreamwayError) -> None:
        """A transcript of nothing but an error, for whoever waits or asks."""
        now = self._clock.monotonic()
        transcript = self._memory.open(id_, tenant, now)
        numbering = Numbering()
        numbering.failed(to_status(error))
        self._memory.keep(transcript, numbering.take(), now)
        self._memory.end(transcript, now)
        self._directory.appeared(transcript)
