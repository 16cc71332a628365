"""What the window is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal["waiting", "running"]
Late = Literal["deadline", "queue_timeout"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A task has come in.

    `rank` is its class, 0 the highest; `lane` names the kind of lane whose places it takes; `priority` −128 … 127, higher
    first. `tenant` and `weight` (≥ 1) are for the turns, `cost` is its estimate in uncached tokens. `expires_at` is when it
    leaves the queue unstarted, `deadline_at` when nobody wants it any more, both on the clock of `now`; `first_token_s` is how
    long its first token takes from the start, as far as that is known. `movable`: it may go back to the pool. `broken_off`: an
    engine call elsewhere has begun it and is gone, so that a client may have a part of the answer before it. `own`: it came
    through a lane of the worker itself.
    """

    id: str
    rank: int
    priority: int
    expires_at: float
    deadline_at: float
    lane: str = ""
    tenant: str = ""
    weight: int = 1
    cost: int = 1
    first_token_s: float = 0.0
    movable: bool = False
    broken_off: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The engine is done with a running task. `used_tokens` is what it has really cost, where that is known."""

    id: str
    used_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A task is not wanted any more."""

    id: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The engine cannot take work, or can again. What runs goes on."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Crowded:
    """The KV cache is too full for another prefill, or has room again. What runs goes on."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Resized:
    """Another number of tasks may run from now on. What runs goes on, and what waits keeps its place."""

    slots: int


Event = Taken | Ended | Withdrawn | Paused | Crowded | Resized | Tick


@dataclass(frozen=True, slots=True)
class Start:
    """Give this task to the engine."""

    id: str


@dataclass(frozen=True, slots=True)
class Drop:
    """End a task for the reason given; `stage` is where it was. A running one must be aborted at the engine."""

    id: str
    stage: Stage
    reason: Literal["withdrawn"] | Late


@dataclass(frozen=True, slots=True)
class Return:
    """Give a waiting task back to the pool, marked as degraded."""

    id: str


Effect = Start | Drop | Return
