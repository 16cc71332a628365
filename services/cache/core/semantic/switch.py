"""Whether the semantic level pays for itself at one tenant, and what follows when it does not.

    on ── a window of questions cost more than it saved ──► off for `pause` questions ──► on trial: a window again
     ▲                                                                                      │
     └── it paid: the next pause is the first one again ◄───────────────────────────────────┤
                                      it did not: off for twice as long, at most `most_pause` ◄┘

Questions that come while it is off are answered by the other levels or by a worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["on", "off", "trial"]


@dataclass(frozen=True, slots=True)
class Terms:
    """`window`: questions over which it has to pay. `grace`: those before which a level that still learns is not judged."""

    window: int = 500
    grace: int = 2_000
    pause: int = 2_000
    most_pause: int = 32_000


class Switch:
    """One tenant's. `enforced`: without it the balance is kept, and nothing follows."""

    def __init__(self, terms: Terms | None = None, *, enforced: bool = True) -> None:
        self._terms = terms or Terms()
        self._enforced = enforced
        self._questions: deque[float] = deque(maxlen=self._terms.window)
        self._asked = 0
        self._pause = self._terms.pause
        self._left = 0
        self.state: State = "on"

    @property
    def balance(self) -> float:
        """Money over the window."""
        return sum(self._questions)

    @property
    def left(self) -> int:
        """Questions until it is tried again; 0 while it is on."""
        return self._left

    def posted(self, money: float) -> None:
        """Something was saved or spent on the last question, or on an earlier one whose fate is known only now."""
        if self._questions:
            self._questions[-1] += money
        else:
            self._questions.append(money)

    def kept(self) -> tuple[State, int, int, int, list[float]]:
        """For `take`: state, questions asked, pause, questions left, and the money of each of the window."""
        return self.state, self._asked, self._pause, self._left, list(self._questions)

    def take(
        self, state: State, asked: int, pause: int, left: int, questions: Iterable[float], *, also_own: bool
    ) -> None:
        """Goes on where another one was; with `also_own` what was asked here came behind that."""
        own = [*self._questions] if also_own else []
        self.state, self._left = state, left
        self._asked = asked + (self._asked if also_own else 0)
        self._pause = max(self._terms.pause, min(pause, self._terms.most_pause))
        self._questions.clear()
        self._questions.extend([*questions, *own])

    def ask(self) -> bool:
        """A question comes: whether the semantic level looks at it. Judges what the window before it came to."""
        if self.state == "off":
            self._left -= 1
            if self._left > 0:
                return False
            self.state = "trial"
            self._left = 0
            self._questions.clear()
        elif self._full and self._judged and not self._pays():
            return False
        self._asked += 1
        self._questions.append(0.0)
        return True

    @property
    def _full(self) -> bool:
        return len(self._questions) == self._terms.window

    @property
    def _judged(self) -> bool:
        return self._enforced and (self.state == "trial" or self._asked >= self._terms.grace)

    def _pays(self) -> bool:
        """Goes on, or switches it off."""
        if self.balance >= 0:
            self.state, self._pause = "on", self._terms.pause
            return True
        if self.state == "trial":
            self._pause = min(2 * self._pause, self._terms.most_pause)
        self.state, self._left = "off", self._pause
        return False
