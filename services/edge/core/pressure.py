"""How hard pressed this edge is by its clients, and which connections give way.

    level 1   requests a second over 1.5 × the limit for 5 s      no new WebSockets, bulk work waits
    level 2   P99 to the first token over 800 ms, 3 samples       idle connections are on notice: see the score
    level 3   is the workers': a KV cache at 92 % for 10 s        no prefill there

    score = 0.40 requests + 0.35 latency + 0.25 memory            each 0 … 1 of what its level begins at, falling with
                                                                  30, 60 and 15 s once what raised it is over

Over a score of 0.85 `int(size × (score − 0.85))` idle connections go at each sample, the rarely used and longest idle first, but
4, under level 2 two, with the memory at its mark one are kept. Numbers are settings. Times are monotonic seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class PressureRules:
    """`requests_per_s` 0: not watched. `weights`, `decay_s` and `kept` are for requests, latency and memory."""

    requests_per_s: float = 0.0
    overload: float = 1.5
    overload_s: float = 5.0
    first_token_ms: float = 800.0
    samples: int = 3
    memory: float = 0.92
    score: float = 0.85
    weights: tuple[float, float, float] = (0.40, 0.35, 0.25)
    decay_s: tuple[float, float, float] = (30.0, 60.0, 15.0)
    kept: tuple[int, int, int] = (4, 2, 1)


@dataclass(frozen=True, slots=True)
class Idle(Generic[_T_co]):
    """A connection with nothing running: how often it was used, and when last."""

    connection: _T_co
    uses: int
    used_at: float


class Pressure:
    """What the levels and the score are now. `crowded` is level 1, `slow` level 2."""

    def __init__(self, rules: PressureRules, now: float) -> None:
        self._rules = rules
        self._parts = [0.0, 0.0, 0.0]
        self._at = [now, now, now]
        self._crowd_turned_at: float | None = None
        self._slow_samples = 0
        self._memory_at_mark = False
        self.crowded = False
        self.slow = False

    @property
    def score(self) -> float:
        """0 … 1."""
        return sum(weight * part for weight, part in zip(self._rules.weights, self._parts, strict=True))

    @property
    def evicts(self) -> bool:
        """The score is over its mark: idle connections may have to go."""
        return self.score > self._rules.score

    @property
    def parts(self) -> tuple[float, ...]:
        """Requests, latency, memory, 0 … 1 each."""
        return tuple(self._parts)

    def requests(self, per_s: float, now: float) -> bool:
        """So many requests came a second of late; True when `crowded` is another than before."""
        rules = self._rules
        most = rules.overload * rules.requests_per_s
        self._raise(0, per_s / most if most else 0.0, now)
        over = bool(most) and per_s > most
        if over == self.crowded:
            self._crowd_turned_at = None
            return False
        if self._crowd_turned_at is None:
            self._crowd_turned_at = now
        if now - self._crowd_turned_at < rules.overload_s:
            return False
        self.crowded, self._crowd_turned_at = over, None
        return True

    def sample(self, first_token_ms: float, memory_share: float, now: float) -> bool:
        """The P99 of the first tokens since the last sample, 0 for none, and the memory in use, 0 … 1. True when `slow` is
        another than before."""
        rules = self._rules
        self._raise(1, first_token_ms / rules.first_token_ms, now)
        self._raise(2, memory_share / rules.memory, now)
        self._memory_at_mark = memory_share >= rules.memory
        over = first_token_ms > rules.first_token_ms
        if over == self.slow:
            self._slow_samples = 0
            return False
        self._slow_samples += 1
        if self._slow_samples < rules.samples:
            return False
        self.slow, self._slow_samples = over, 0
        return True

    def giving_way(self, idle: Sequence[Idle[_T]], size: int) -> Iterable[_T]:
        """Which of the idle connections go now; `size` is how many there are, idle or not."""
        number = int(size * (self.score - self._rules.score))
        number = min(number, len(idle), size - self._kept)
        chosen = heapq.nsmallest(max(0, number), idle, key=lambda one: (one.uses, one.used_at))
        return [one.connection for one in chosen]

    @property
    def _kept(self) -> int:
        by_requests, by_latency, by_memory = self._rules.kept
        if self._memory_at_mark:
            return by_memory
        return by_latency if self.slow else by_requests

    def _raise(self, part: int, value: float, now: float) -> None:
        """A part rises at once and falls slowly."""
        left = self._parts[part] * math.exp((self._at[part] - now) / self._rules.decay_s[part])
        self._parts[part], self._at[part] = min(1.0, max(value, left)), now


class FirstTokenSample:
    """The waits for first tokens between two samples, in milliseconds. Beyond `most` the earlier ones speak for the rest."""

    def __init__(self, most: int = 16_384) -> None:
        self._most = most
        self._waits: list[float] = []

    def note(self, wait_ms: float) -> None:
        """A first token has come."""
        if len(self._waits) < self._most:
            self._waits.append(wait_ms)

    def take_p99_ms(self) -> float:
        """The P99 by nearest rank, 0 for none; the next sample begins."""
        waits, self._waits = sorted(self._waits), []
        return waits[math.ceil(len(waits) * 0.99) - 1] if waits else 0.0
