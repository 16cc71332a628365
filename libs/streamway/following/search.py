"""Looking for the worker that goes on: what is known so far, and when to give up. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streamway.errors import EventsExpired, GenerationNotFound, StreamwayError, WorkerLost
from streamway.following.catching_up import Found
from streamway.following.ports import Located
from streamway.journal import Cursor

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
# A record may say "finished" a moment before the channel does.
_ENDED_LOOKS: Final = 5


@dataclass(slots=True)
class Search:
    """One search. `problem` is what is told if it finds nothing; None: what fits."""

    generation: str
    lost_worker: str
    problem: StreamwayError | None
    pause_s: float = 0.0
    ended_looks: int = 0
    found: Found = Found.UNREADABLE

    def __post_init__(self) -> None:
        if self.problem is not None and not self.lost_worker:
            # The worker is there, and refused this reader: it must not be asked again and again without a pause.
            self.pause_s = _FIRST_PAUSE_S

    @property
    def refuted(self) -> bool:
        """Neither the channel nor the worker has what lies before the cursor."""
        return self.problem is not None and self.found is Found.BEHIND

    def reaches(self, located: Located, cursor: Cursor) -> bool:
        """There is a worker to read from."""
        if located.place is None or (located.ended and located.durable):
            return False
        return located.place.worker != self.lost_worker or located.epoch > cursor.epoch

    def not_reached(self, located: Located | StreamwayError) -> bool:
        """Notes an answer that leads nowhere. True: nothing will come any more, and nothing is left to read."""
        self.pause_s = min(max(self.pause_s * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        if isinstance(located, Located):
            self.ended_looks += located.ended
            # A worker that can't be reached is as good as one whose stream broke.
            self.lost_worker = self.lost_worker or located.worker
        nothing = self.found is Found.NOTHING
        if isinstance(located, GenerationNotFound):
            return nothing
        return self.ended_looks >= _ENDED_LOOKS or (self.ended_looks > 0 and nothing)

    def verdict(self, *, hopeless: bool) -> StreamwayError:
        """What is told at its end."""
        if self.problem is not None:
            return self.problem
        return EventsExpired(self.generation) if hopeless else WorkerLost(self.lost_worker)
