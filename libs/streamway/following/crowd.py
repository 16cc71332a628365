"""Many readers that come back at once ask the store together.

A thousand clients return in the same second, after an edge or a network has gone. Each would ask alone, wait for each answer, and
read all it missed before the next one gets a word. Instead:

    first words   what a reader needs for its first token is one group of commands; the groups of all that ask in one turn of
                  the loop leave in one write, up to 64, and an answer is worked on when it arrives, without a task of its own
    the rest      everything else (further pages, the way to the worker) waits until nobody is without its first word and, where
                  many have come, nobody new has asked for a moment: the requests of others may still wait to be read. A little
                  of it always goes on, so that a crowd without an end keeps nobody out
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import hiredis
import structlog

from streamway.runtime.tasks import TaskScope
from streamway.valkey.session import LinkLost, Reply, Session, Sessions, StoreRefused

_log = structlog.get_logger("following")
_MOST_TOGETHER: Final = 64
# So many that asked within so short a time of each other are a crowd, of which more may come.
_MANY: Final = 32
_CALM_S: Final = 0.02
# Of the rest while somebody waits for its first word: so many, so often.
_TRICKLE: Final = 4
_TRICKLE_S: Final = 0.025
_AHEAD_S: Final = 0.2


class Question:
    """A group of commands, and what happens with the replies. Exactly one of `answered` and `unanswered` is called, once."""

    __slots__ = ("_open", "_replies")

    def __init__(self) -> None:
        self._open = True
        self._replies: list[Reply] = []

    def packed(self) -> tuple[bytes, int]:
        """What is asked: whole commands, and how many they are."""
        raise NotImplementedError

    def answered(self, replies: Sequence[Reply]) -> None:
        """The replies, in the order of the commands; none is an error."""
        raise NotImplementedError

    def unanswered(self) -> None:
        """The store is away, refused it or does not answer in time."""
        raise NotImplementedError

    def put(self, session: Session) -> None:
        """Sends it."""
        commands, count = self.packed()
        session.send_group(commands, [*[self._replies.append] * (count - 1), self._last])

    def settle(self) -> None:
        """Nothing more comes."""
        if self._open:
            self._open = False
            self.unanswered()

    def _last(self, reply: Reply) -> None:
        if not self._open:
            return
        self._open = False
        replies, self._replies = self._replies, []
        replies.append(reply)
        try:
            for each in replies:
                if isinstance(each, hiredis.ReplyError):
                    self.unanswered()
                    return
            self.answered(replies)
        except Exception:  # noqa: BLE001 — one reader's fault must not break the connection of all
            _log.exception("answer_failed")


class Crowd:
    """One for the process. `wait_s`: after that the store counts as away. `clock` gives seconds."""

    def __init__(
        self, journal: Sessions, scope: TaskScope, wait_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._journal = journal
        self._scope = scope
        self._wait_s = wait_s
        self._clock = clock
        # When somebody came last, and how many since there was calm.
        self._came = 0.0
        self._came_together = 0
        self._first: deque[Question] = deque()
        self._rest: deque[Question | Callable[[], None]] = deque()
        self._flying_first = 0
        self._flying_rest = 0
        self._scheduled = False
        self._trickle: asyncio.TimerHandle | None = None
        # Workers that somebody is looking for, and until when the others let it go ahead.
        self._ahead: dict[str, float] = {}

    def ask(self, question: Question) -> None:
        """Asks for somebody's first word."""
        now = self._clock()
        self._came_together = self._came_together + 1 if now - self._came < _CALM_S else 1
        self._came = now
        self._first.append(question)
        self._soon()

    def later(self, work: Question | Callable[[], None]) -> None:
        """Asks, or does, what can wait for the first words of others."""
        self._rest.append(work)
        self._soon()

    def after(self, delay_s: float, work: Callable[[], None]) -> None:
        """The same, not before so many seconds have passed."""
        asyncio.get_running_loop().call_later(delay_s, self.later, work)

    def goes_ahead(self, worker: str) -> bool:
        """Whether the caller is to find the way to a worker; the others find it open a moment later."""
        now = self._clock()
        if self._ahead.get(worker, 0.0) > now:
            return False
        self._ahead = {name: until for name, until in self._ahead.items() if until > now}
        self._ahead[worker] = now + _AHEAD_S
        return True

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        first = [self._first.popleft() for _ in range(min(len(self._first), _MOST_TOGETHER))]
        if first:
            self._flying_first += len(first)
            self._scope.spawn(self._fly(first, first=True), "first-words")
        others_first = self._others_first()
        if self._rest and not others_first:
            self._go_on_with_the_rest(_MOST_TOGETHER)
        elif self._rest and self._trickle is None:
            self._trickle = asyncio.get_running_loop().call_later(_TRICKLE_S, self._drip)
        if self._first or (self._rest and not others_first and self._flying_rest < _MOST_TOGETHER):
            self._soon()

    def _others_first(self) -> bool:
        """Somebody waits for its first word, or more may come."""
        if self._flying_first or self._first:
            return True
        return self._came_together >= _MANY and self._clock() - self._came < _CALM_S

    def _drip(self) -> None:
        self._trickle = None
        self._go_on_with_the_rest(_TRICKLE)
        self._soon()

    def _go_on_with_the_rest(self, most: int) -> None:
        questions: list[Question] = []
        for _ in range(most):
            if not self._rest or len(questions) + self._flying_rest >= most:
                break
            work = self._rest.popleft()
            if isinstance(work, Question):
                questions.append(work)
            else:
                work()
        if questions:
            self._flying_rest += len(questions)
            self._scope.spawn(self._fly(questions, first=False), "rest")

    async def _fly(self, questions: list[Question], *, first: bool) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                session = await self._journal.session()
                for question in questions:
                    question.put(session)
                # Replies come in order: with this one all the others have.
                await session.call("PING")
        except (TimeoutError, LinkLost, StoreRefused):
            pass
        finally:
            if first:
                self._flying_first -= len(questions)
            else:
                self._flying_rest -= len(questions)
        for question in questions:
            question.settle()
        self._soon()
