"""What a decision about a worker is made of, and what it says.

Wanted ──┐
         ├──► Strategy.choose ──► Decision: worker, branch, reason
Pool  ───┘
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

from services.router.core.queues import NO_LANE
from streamway.valkey.keys import TaskClass


class Branch(StrEnum):
    """Where the worker stands to the session's home; a label of metrics, and `Accepted.route`."""

    HOME = "home"  # the key's own worker
    SPILL = "spill"  # home has no room, or had none and the session stayed with its KV
    MOVED = "moved"  # home takes no work now, or has come lately and the session has not been let move there yet
    NO_KEY = "no_key"  # nothing to hash: least loaded
    NONE_ELIGIBLE = "none_eligible"  # nobody can take it


class Reason(StrEnum):
    """Why this worker; a label of metrics beside the branch, and `Accepted.reason`."""

    FIRST = "first"  # home, by its place on the ring
    RETURNED = "returned"  # home again, from where it had spilled to
    PACED_IN = "paced_in"  # home has changed, and it was this session's turn to move there
    OVER_BOUND = "over_bound"  # home is over its bound
    QUEUE_FULL = "queue_full"  # the lane at home is at its limit
    KV_FULL = "kv_full"  # home's KV cache is too full for another prefill
    KEPT = "kept"  # its KV where it is is worth more than the walk home
    WAITS_TO_MOVE = "waits_to_move"  # home has changed; too many moved there this second
    CLOSED = "closed"  # home drains, is unhealthy, or must not be used for this request
    NO_SLOT = "no_slot"  # urgent, and no slot is free where its session is
    LEAST = "least"  # the least loaded
    PREFIX = "prefix"  # the least work: this beginning of a prompt is in its KV
    ALL_FULL = "all_full"  # the lane is at its limit everywhere
    NOBODY = "nobody"  # no worker takes work


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that serves the model, as a decision sees it.

    `load`: tokens in flight. `open`: it takes work. `full`: its lanes that are at the limit, all where its KV cache is
    full (`kv_full`). `wait_ms`: how long a new task would wait there for a slot. `prefill_ms`: milliseconds for one prompt token
    that is not in its KV. `weight`: what runs there side by side now, which moves; `size`: the same as far as sessions' homes go
    by it, which does not; 0: as its weight. `ahead`: slots that it keeps for urgent work and that are free, below 0 where some
    waits; None: it keeps none now. `turnover_ms`: from one end of a generation to the next.
    """

    worker: str
    weight: float
    load: float
    open: bool = True
    full: Set[TaskClass] = NO_LANE
    wait_ms: float = 0.0
    prefill_ms: float = 0.0
    kv_full: bool = False
    size: float = 0.0
    ahead: int | None = None
    turnover_ms: float = 0.0

    @property
    def starts_urgent(self) -> bool:
        """Urgent work would start at once."""
        return self.ahead is None or self.ahead > 0

    def takes(self, lane: TaskClass) -> bool:
        """A new task of this lane may go there."""
        return self.open and lane not in self.full

    @property
    def pressure(self) -> float:
        """Load for its size."""
        return self.load / self.weight


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request, as a decision sees it. Tokens are estimates.

    `blocks` names the beginning of the prompt, block by block, where the strategy wants that. `barred`: workers that must not
    have this request whatever they say of themselves. `lane`: which of a worker's it would wait in.
    """

    model: str
    session: str
    prompt_tokens: int
    output_tokens: int
    tenant: str = ""
    blocks: tuple[int, ...] = ()
    barred: Set[str] = frozenset()
    lane: TaskClass = "gold"

    @property
    def tokens(self) -> int:
        """All of prompt and answer: what of it will be in KV at the end."""
        return self.prompt_tokens + self.output_tokens

    def tokens_beside(self, cached: int) -> int:
        """What it puts in flight at a worker that has `cached` tokens of the prompt in KV: what is to be computed and made."""
        return max(1, self.prompt_tokens - cached) + self.output_tokens


@dataclass(frozen=True, slots=True)
class Decision:
    """`worker` is empty when nobody can take it; then `full` tells whether queues are why. `home` is empty without a key.

    `tokens` is what the request puts in flight at that worker.
    """

    worker: str
    branch: Branch
    reason: Reason
    home: str = ""
    tokens: int = 0

    @property
    def full(self) -> bool:
        """Nobody can take it, and queues are why."""
        return self.reason is Reason.ALL_FULL

    @classmethod
    def nobody(cls, *, any_open: bool) -> Decision:
        """Nobody can take it. `any_open`: somebody would, if its queue were not full."""
        return cls("", Branch.NONE_ELIGIBLE, Reason.ALL_FULL if any_open else Reason.NOBODY)

    @classmethod
    def unkeyed(cls, worker: str, tokens: int) -> Decision:
        """The least loaded takes what has no home."""
        return cls(worker, Branch.NO_KEY, Reason.LEAST, "", tokens)
