"""How many generations a worker gives its engine at a time: fewer where first tokens come late, more where they come quickly.

Every 5 s, over the last 30 s:

    first tokens late (P95), or CPU above 80 % and rising   ─┐ and
    more than 500 generations live, or above 80 % of the limit ─┴─► 5 fewer, not below the floor
    the memory nearly full ───────────────────────────────────► 1 fewer, not below 1; 1 more when it is not any more
    first tokens quick (P95) and the load below 70 %         ─────► 10 more, not above the ceiling

A first token counts from the engine call on. Counted from acceptance, the wait that a low limit makes would lower it further.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Why = Literal["first_token", "cpu", "memory", "room"]
# P95: so many of the calls may be slower.
_MAY_BE_SLOWER: Final = 0.05
# Of fewer calls the slowest five percent say nothing.
_LEAST_CALLS: Final = 10


class LimitRule(BaseModel):
    """The numbers of the rule; docs/design.md §7."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slow_ms: float = Field(
        default=200.0,
        gt=0,
        le=3_600_000,
        description="P95 of the first tokens, from the engine call on, above which the limit goes down, in milliseconds. An"
        " engine that is slower when it is well wants more.",
    )
    quick_ms: float = Field(
        default=100.0, gt=0, le=3_600_000, description="The same P95 below which it may go up, in milliseconds."
    )
    floor: int = Field(
        default=10,
        ge=1,
        le=65_536,
        description="Lowest limit it goes down to; an engine with fewer slots always gets as many as it has.",
    )
    ceiling: int = Field(
        default=500,
        ge=1,
        le=65_536,
        description="Highest limit it goes up to where nobody has said how many slots the engine has; else those are it.",
    )
    step_down: int = Field(default=5, ge=0, le=65_536, description="By how much it goes down. 0: never.")
    step_up: int = Field(default=10, ge=0, le=65_536, description="By how much it goes up. 0: never.")
    cpu: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="Share of this process's CPU above which it goes down while the share still rises.",
    )
    full: float = Field(
        default=0.8, gt=0, le=1, description="Share of the limit in use above which a worker alone may lower it."
    )
    mesh_generations: int = Field(
        default=500,
        ge=0,
        le=10_000_000,
        description="Live generations of all routers above which a worker with less in use may lower it too.",
    )
    roomy: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Share of the slots, the KV cache and the CPU that must all be in use less for the limit to go up.",
    )
    every_s: float = Field(default=5.0, ge=0.1, le=3600, description="Seconds between two looks.")
    window_s: float = Field(default=30.0, ge=0.1, le=3600, description="Seconds that a look goes back.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.quick_ms > self.slow_ms:
            raise ValueError("quick_ms must not be above slow_ms")
        if self.window_s < self.every_s:
            raise ValueError("window_s must not be below every_s")
        return self


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker does not find in its own books. `cpu` is the share since the last look, `kv_used` None where it is unknown,
    `mesh_generations` how many live at all routers, 0 where that is unknown, `memory_pressed` whether memory is nearly full."""

    cpu: float
    kv_used: float | None
    mesh_generations: int
    memory_pressed: bool = False


@dataclass(slots=True)
class _Interval:
    """From one look to the next: engine calls by how soon their first token came, the share of CPU, when it ended."""

    calls: int = 0
    slow: int = 0
    not_quick: int = 0
    cpu: float = 0.0
    ended_at: float = 0.0


class Concurrency:
    """The limit of one worker. Times are monotonic seconds.

    It begins with the engine's `slots`. `elastic`: that number is a guess, and the engine orders by itself what it gets beyond.
    """

    def __init__(self, rule: LimitRule, slots: int, now: float, *, elastic: bool) -> None:
        self._rule = rule
        self._slots = slots
        self._least = min(rule.floor, slots)
        self._most = max(slots, rule.ceiling) if elastic else slots
        self.limit = slots
        # What moved it last.
        self.why: Why | Literal[""] = ""
        # Of the slots so many are not used since memory was short.
        self._withheld = 0
        self._past: deque[_Interval] = deque()
        self._current = _Interval()
        self._begun_at = now
        # Of the running ones since the last look: their sum over so many ticks.
        self._running = self._ticks = 0

    def first_token(self, took_s: float) -> None:
        """An engine call has made its first token."""
        took_ms, current = took_s * 1000, self._current
        current.calls += 1
        current.slow += took_ms > self._rule.slow_ms
        current.not_quick += took_ms >= self._rule.quick_ms

    def tick(self, running: int, now: float) -> bool:
        """So many run now; True when it is time for a look."""
        self._running += running
        self._ticks += 1
        return now - self._begun_at >= self._rule.every_s

    def look(self, around: Surroundings, now: float) -> Why | None:
        """Decides; a reason when the limit is another one now."""
        why = self._decide(around, now)
        self.why = why or self.why
        return why

    def _decide(self, around: Surroundings, now: float) -> Why | None:
        running = self._running / max(1, self._ticks)
        self._close(around.cpu, now)
        if around.memory_pressed:
            moved = self._set(max(1, self.limit - 1))
            self._withheld += moved
            return "memory" if moved else None
        why = self._too_much(running, around)
        if why is not None:
            return why if self._set(max(min(self._least, self.limit), self.limit - self._rule.step_down)) else None
        if self._withheld:
            self._withheld -= 1
            return "memory" if self._set(min(self._most, self.limit + 1)) else None
        if self._has_room(running, around):
            return "room" if self._set(min(self._most, self.limit + self._rule.step_up)) else None
        return None

    def _close(self, cpu: float, now: float) -> None:
        done, self._current = self._current, _Interval()
        done.cpu, done.ended_at = cpu, now
        self._past.append(done)
        while now - self._past[0].ended_at >= self._rule.window_s:
            self._past.popleft()
        self._begun_at, self._running, self._ticks = now, 0, 0

    def _too_much(self, running: float, around: Surroundings) -> Why | None:
        crowded = around.mesh_generations > self._rule.mesh_generations or running > self._rule.full * self.limit
        if not crowded:
            return None
        calls = self._calls
        if calls >= _LEAST_CALLS and sum(each.slow for each in self._past) > _MAY_BE_SLOWER * calls:
            return "first_token"
        if self._cpu > self._rule.cpu and around.cpu > self._cpu:
            return "cpu"
        return None

    def _has_room(self, running: float, around: Surroundings) -> bool:
        # Against the slots where the limit is below them: else a low limit, always in use, would never go up again.
        load = max(running / max(self.limit, self._slots), around.kv_used or 0.0, self._cpu)
        calls = self._calls
        quick = calls >= _LEAST_CALLS and sum(each.not_quick for each in self._past) <= _MAY_BE_SLOWER * calls
        return quick and load < self._rule.roomy

    def _set(self, limit: int) -> bool:
        before, self.limit = self.limit, limit
        return limit != before

    @property
    def _calls(self) -> int:
        return sum(each.calls for each in self._past)

    @property
    def _cpu(self) -> float:
        return sum(each.cpu for each in self._past) / len(self._past)
