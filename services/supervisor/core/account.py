"""What one client of a chaos run was told of one generation, and what was wrong with it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from streamway.errors import from_status
from streamway.v1 import common_pb2

# These say that this way of reading has ended, or that the mesh can't take it just now: come again.
_COME_AGAIN: Final = frozenset(
    {"going_away", "slow_consumer", "router_unavailable", "no_workers", "queue_full", "store_unavailable"}
)


class ComeAgain(Exception):
    """The client is to come back with its cursor. The message is the reason it was given."""


class Account:
    """One generation as its client sees it: every position is booked, what is missing or comes twice is counted.

    `expected` is the text of an undisturbed run, of `tokens` tokens. Times are seconds of the caller's clock.
    """

    def __init__(self, expected: str, tokens: int) -> None:
        self.expected = expected
        self.tokens = tokens
        self.generation = ""
        self.position = 0
        self.epoch = 0
        self.durability = ""
        # Where it is: the service that the client is connected to, and the worker.
        self.through = ""
        self.worker = ""
        self.accepted_at: float | None = None
        self.started = False
        self.over = False
        self.units = 0
        self.breaks = 0
        # Why it ended, where that is not a whole answer: an error reason of the mesh, or what the client made of it.
        self.ended_with = ""
        self.not_durable = 0
        self._text: list[str] = []
        self._missing = 0
        self._twice = 0
        # When pieces of the answer came, and its end.
        self._marks: list[float] = []

    @property
    def text(self) -> str:
        """What the client shows."""
        return "".join(self._text)

    @property
    def cursor(self) -> str:
        """Where it goes on from."""
        return f"{self.epoch}-{self.position}"

    @property
    def lost(self) -> int:
        """Positions that never came, and tokens that an answer that ended whole does not have."""
        short = self.tokens - self.units if self.over and not self.ended_with else 0
        return max(self._missing, short, 0)

    @property
    def repeated(self) -> int:
        """Positions that came a second time, and tokens beyond those of the answer."""
        return max(self._twice, self.units - self.tokens, 0)

    @property
    def problem(self) -> str:
        """Why this is no whole answer; empty for one that is what an undisturbed run gives."""
        if self.ended_with:
            return self.ended_with
        if not self.over:
            return "it never ended"
        if self.text != self.expected:
            return f"another text from character {_first_difference(self.text, self.expected)} on"
        return ""

    @property
    def honest(self) -> bool:
        """What came is the beginning of the answer, each position once."""
        return not self._missing and not self._twice and self.expected.startswith(self.text)

    def longest_silence(self, since: float, *, before_first: bool = False) -> float | None:
        """Longest time between two pieces of which the second came after `since`, the end counted as one.

        A stream that had no piece yet gives None, as its place in a queue says nothing about recovery; with `before_first`
        the time from `since` to its first. None too where nothing came any more.
        """
        marks = self._marks
        if not marks or marks[0] > since:
            if not before_first:
                return None
            marks = [since, *marks]
        return max((after - before for before, after in itertools.pairwise(marks) if after > since), default=None)

    def frame(self, frame: Mapping[str, Any], now: float) -> None:
        """One JSON frame, of a WebSocket or of server-sent events. Raises ComeAgain."""
        kind = frame["type"]
        if kind == "error":
            self.refused(str(frame["reason"]))
        elif kind == "resumed":
            self._resumed(recovered=bool(frame["recovered"]), behind=bool(frame.get("behind")))
        elif kind == "diverged":
            self.give_up("diverged")
        elif (last := int(frame.get("position", 0))) and not self._book(
            int(frame.get("first_position", last)), last, int(frame.get("epoch", 0))
        ):
            return
        if kind == "accepted":
            self._accepted(str(frame["generation"]), str(frame.get("worker") or ""), str(frame["durability"]), now)
        elif kind in ("started", "taken_over"):
            self._began(str(frame["worker"]))
        elif kind == "token":
            units = int(frame["position"]) - int(frame.get("first_position", frame["position"])) + 1
            self._piece(str(frame["text"]), units, now, durable=not frame.get("not_durable"))
        elif kind == "finished":
            self._finished(int((frame.get("usage") or {}).get("completion_tokens", -1)), now)

    def event(self, event: common_pb2.Event, now: float) -> None:
        """One event of gRPC. Raises ComeAgain."""
        kind = event.WhichOneof("event")
        if kind == "resumed":
            self._resumed(recovered=event.resumed.recovered, behind=event.resumed.behind)
        elif kind == "diverged":
            self.give_up("diverged")
        elif event.position and not self._book(event.first_position or event.position, event.position, event.epoch):
            return
        if kind == "accepted":
            mode = common_pb2.Durability.Name(event.accepted.durability).removeprefix("DURABILITY_").lower()
            self._accepted(event.generation, event.accepted.worker, mode, now)
        elif kind == "started":
            self._began(event.started.worker)
        elif kind == "taken_over":
            self._began(event.taken_over.worker)
        elif kind == "token":
            units = event.position - (event.first_position or event.position) + 1
            self._piece(event.token.text, units, now, durable=not event.not_durable)
        elif kind == "finished":
            self._finished(event.finished.usage.completion_tokens, now)
        elif kind == "error":
            self.refused(from_status(event.error.status).name)

    def refused(self, reason: str) -> None:
        """The mesh has said an error. Raises ComeAgain where it is one that passes."""
        if reason in _COME_AGAIN:
            raise ComeAgain(reason)
        self.give_up(reason)

    def broke(self) -> None:
        """The connection ended without an end of the answer."""
        self.breaks += 1

    def give_up(self, reason: str) -> None:
        """Nothing more comes of it."""
        self.ended_with = reason
        self.over = True

    def _book(self, first: int, last: int, epoch: int) -> bool:
        """Counts positions; False for what was there already."""
        if epoch:
            self.epoch = epoch
        if last <= self.position:
            self._twice += last - first + 1
            return False
        if first <= self.position:
            self._twice += self.position - first + 1
        self._missing += max(0, first - self.position - 1)
        self.position = last
        return True

    def _accepted(self, generation: str, worker: str, durability: str, now: float) -> None:
        self.generation, self.worker, self.durability = generation, worker, durability
        self.accepted_at = now

    def _began(self, worker: str) -> None:
        self.started = True
        self.worker = worker

    def _piece(self, text: str, units: int, now: float, *, durable: bool) -> None:
        self._text.append(text)
        self.units += units if text else 0
        self.not_durable += not durable
        self._marks.append(now)

    def _finished(self, completion_tokens: int, now: float) -> None:
        self.over = True
        self._marks.append(now)
        if completion_tokens != self.tokens:
            self.ended_with = f"usage says {completion_tokens} tokens"

    def _resumed(self, *, recovered: bool, behind: bool) -> None:
        if behind:
            self.give_up("behind")
        elif not recovered:
            # The hole shows in the positions that follow; where none follow, the error that does says why.
            self.breaks += 1


def _first_difference(left: str, right: str) -> int:
    return next(
        (index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
