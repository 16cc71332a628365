"""One answer as a client of gRPC reads it, over as many connections as it takes."""

from __future__ import annotations

from dataclasses import dataclass

from streamway.errors import from_status
from streamway.v1 import common_pb2


class BeginAnew(Exception):
    """The store lost a part of what was shown: the answer is read again from its beginning."""


@dataclass(slots=True)
class Answer:
    """What has come so far, and the cursor behind it. It takes every event of every call and shows each position once."""

    generation: str = ""
    epoch: int = 0
    position: int = 0
    text: str = ""
    units: int = 0
    worker: str = ""
    cache: str = ""
    # What it cost, where its model has a price.
    cost: float | None = None
    over: bool = False
    # Why it ended, as the engine said: "stop", "length" …
    finish: str = ""
    # What a person must know beside the text: a part is missing, another worker went on.
    notes: tuple[str, ...] = ()

    @property
    def cursor(self) -> str:
        """Where reading goes on, "epoch-position"."""
        return f"{self.epoch}-{self.position}" if self.position else "0-0"

    def receive(self, event: common_pb2.Event) -> str:
        """Takes the next event; gives the text that is new.

        Raises BeginAnew, and the StreamwayError that the generation ended with.
        """
        kind = event.WhichOneof("event")
        self.generation = event.generation or self.generation
        if kind == "resumed":
            self._resumed(event.resumed)
        elif kind == "diverged":
            self.epoch = self.position = self.units = 0
            self.text = ""
            raise BeginAnew
        if not event.position or event.position <= self.position:
            return ""
        self.position, self.epoch = event.position, event.epoch or self.epoch
        if kind == "accepted":
            self.worker, self.cache = event.accepted.worker, event.accepted.cache
        elif kind == "started":
            self.worker = event.started.worker or self.worker
        elif kind == "taken_over":
            self.worker = event.taken_over.worker
            self._note(f"{event.taken_over.from_worker or 'its worker'} is gone, {self.worker} goes on")
        elif kind == "token":
            self.units += event.token.units or 1
            self.text += event.token.text
            return event.token.text
        elif kind == "finished":
            self._finished(event.finished)
        elif kind == "error":
            raise from_status(event.error.status)
        return ""

    def _finished(self, finished: common_pb2.Finished) -> None:
        self.over, self.finish = True, finished.finish_reason
        if finished.usage.HasField("cost"):
            self.cost = finished.usage.cost

    def _resumed(self, resumed: common_pb2.Resumed) -> None:
        if resumed.behind:
            self._note("the store lost the newest part; what follows is how the answer ended")
        elif not resumed.recovered and resumed.oldest:
            self._note(f"positions {self.position + 1} to {resumed.oldest - 1} are no longer kept")

    def _note(self, text: str) -> None:
        self.notes = (*self.notes, text)
