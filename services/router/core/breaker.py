"""One breaker: whether a tier's requests for one model may go to one worker.

              errors > threshold, ≥ 10 calls           wait over
    CLOSED ───────────────────────────────► OPEN ───────────────► HALF_OPEN
       ▲                                      ▲   a probe fails       │
       │                                      └───────────────────────┤
       └──────────────────────────────────────────────────────────────┘
                          3 probes succeed: at most 1, then 2, then 4 at once

Each opening waits twice as long as the one before, with jitter, up to a limit. How often it has opened is forgotten only when it
has stayed closed for longer than the wait it came out of: a worker that flaps is asked less and less.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

# Most probes at once, by how many have succeeded since it was half open.
RAMP: Final = (1, 2, 4)
_SUCCESSES_TO_CLOSE: Final = len(RAMP)
# A window is counted in so many parts: what is forgotten at once is no more than one of them.
_PARTS: Final = 12


class State(IntEnum):
    """As the gauge shows it."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2


@dataclass(frozen=True, slots=True)
class Waits:
    """How long an open one waits: `first_s` seconds, then twice as long each time up to `longest_s`; each ± `jitter` of it."""

    first_s: float = 5.0
    longest_s: float = 120.0
    jitter: float = 0.2

    def wait_s(self, openings: int, draw: float) -> float:
        """The wait of the nth opening (from 1). `draw` is 0 … 1."""
        # Beyond 2^30 no limit is out of reach.
        whole = min(self.longest_s, self.first_s * 2.0 ** min(30, openings - 1))
        return whole * (1 + self.jitter * (2 * draw - 1))


class Window:
    """Calls and failures of the last `window_s` seconds."""

    def __init__(self, window_s: float) -> None:
        self._part_s = window_s / _PARTS
        # (number of the part, calls, failures), oldest first
        self._parts: deque[list[int]] = deque()
        self.calls = 0
        self.failures = 0

    @property
    def rate(self) -> float:
        """The part that failed; 0 without calls."""
        return self.failures / self.calls if self.calls else 0.0

    def note(self, now: float, *, failed: bool) -> None:
        """One more."""
        part = int(now / self._part_s)
        while self._parts and self._parts[0][0] <= part - _PARTS:
            _, calls, failures = self._parts.popleft()
            self.calls -= calls
            self.failures -= failures
        if not self._parts or self._parts[-1][0] < part:
            self._parts.append([part, 0, 0])
        last = self._parts[-1]
        last[1] += 1
        last[2] += failed
        self.calls += 1
        self.failures += failed

    def clear(self) -> None:
        """Forgets all."""
        self._parts.clear()
        self.calls = self.failures = 0


class Breaker:
    """The state machine. `now` is seconds of one clock that does not go back."""

    __slots__ = ("_closed_at", "_probing", "_window", "openings", "round", "state", "successes", "until", "wait_s")

    def __init__(self, window_s: float) -> None:
        self._window = Window(window_s)
        self.state = State.CLOSED
        # How often it has opened since it was last trusted; how long it waits and until when; which opening this is, of all.
        self.openings = 0
        self.wait_s = 0.0
        self.until = 0.0
        self.round = 0
        self.successes = 0
        self._closed_at = 0.0
        self._probing = 0

    @property
    def probing(self) -> int:
        """Probes in flight."""
        return self._probing

    def bars(self, now: float) -> bool:
        """No request may go there now."""
        if self.state is State.CLOSED:
            return False
        if self.state is State.OPEN:
            return now < self.until or self._probing >= RAMP[0]
        return self._probing >= RAMP[self.successes]

    def pass_time(self, now: float) -> None:
        """An open one whose wait is over is half open."""
        if self.state is State.OPEN and now >= self.until:
            self.state, self.successes = State.HALF_OPEN, 0

    def placed(self, now: float) -> int:
        """A request goes there. Returns the round it is a probe of; 0: it is none, and goes there since nothing bars it, or since
        too many are barred."""
        self.pass_time(now)
        if self.state is not State.HALF_OPEN or self._probing >= RAMP[self.successes]:
            return 0
        self._probing += 1
        return self.round

    def probed(self, round_: int, failed: bool | None, waits: Waits, now: float, draw: float) -> None:
        """A probe has ended. None: in a way that says nothing. One of an earlier round only makes room."""
        self._probing -= 1
        if failed is None or round_ != self.round or self.state is not State.HALF_OPEN:
            return
        if failed:
            self._open(self.openings + 1, waits, now, draw)
            return
        self.successes += 1
        if self.successes >= _SUCCESSES_TO_CLOSE:
            self._close(now)

    def note(self, threshold: float, least_calls: int, waits: Waits, now: float, draw: float, *, failed: bool) -> None:
        """A call has ended that was no probe. Only a closed one judges by it."""
        if self.state is not State.CLOSED:
            return
        window = self._window
        window.note(now, failed=failed)
        if self.openings and now - self._closed_at > self.wait_s:
            self.openings = 0
        if failed and window.calls >= least_calls and window.rate > threshold:
            self._open(self.openings + 1, waits, now, draw)

    def learn(self, openings: int, wait_s: float, now: float) -> None:
        """Somebody else has opened it, for `wait_s` from now. What ends later holds."""
        if wait_s <= 0 or (self.state is State.OPEN and self.until >= now + wait_s):
            return
        self._opened(max(1, openings), wait_s, now)

    def learn_closed(self, openings: int, now: float) -> None:
        """Somebody's probes have closed it after so many openings. One that has opened more often since knows better."""
        if self.state is State.CLOSED or self.openings > openings:
            return
        self.openings = openings
        self._close(now)

    def _close(self, now: float) -> None:
        self.state, self._closed_at = State.CLOSED, now
        self._window.clear()

    def _open(self, openings: int, waits: Waits, now: float, draw: float) -> None:
        self._opened(openings, waits.wait_s(openings, draw), now)

    def _opened(self, openings: int, wait_s: float, now: float) -> None:
        self.state = State.OPEN
        self.openings, self.wait_s, self.until = openings, wait_s, now + wait_s
        self.round += 1
        self.successes = 0
        self._window.clear()
