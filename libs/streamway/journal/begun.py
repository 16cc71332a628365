"""An engine call that has begun."""

from __future__ import annotations

from dataclasses import dataclass

from streamway.journal.entries import Entry
from streamway.journal.signals import Place
from streamway.lanes.task import TaskCopy


@dataclass(frozen=True, slots=True)
class Begun:
    """An engine call that has begun: all it needs to write, and to heal what the store loses.

    `before` are the entries on its line up to its begin, in order; `place` is where the task copy lies.
    """

    copy: TaskCopy
    place: Place
    before: tuple[Entry, ...]
    begin: Entry

    @property
    def epoch(self) -> int:
        return self.begin.epoch
