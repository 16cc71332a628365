"""A large and a small model behind one name: which one now.

             P99 to the first token or KV of the large one's workers at its limit
    large ──────────────────────────────────────────────────────────────────────► small
          ◄──────────────────────────────────────────────────────────────────────
             both below `return_below` of the limit, `hold_s` after the last change

A large model without a ready worker is not used either; a small one without any is never preferred.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from services.router.core.worker import Worker
from streamway.models import Choice


class Why(StrEnum):
    """Why the large or the small one; a label of metrics."""

    LARGE = "large"  # nothing is wrong with it
    NO_SMALL = "no_small"  # nobody serves the small one
    NO_LARGE = "no_large"  # nobody serves the large one
    SLOW = "slow"  # it takes too long
    MEMORY = "memory"  # its KV cache is full
    HELD = "held"  # it is better again, but not for long enough, or not by enough


@dataclass(frozen=True, slots=True)
class Condition:
    """A model's ready workers, as one: means over them, weighted by slots. `workers` 0: there is none.

    `first_token_ms` is of their P99s over the last minute; `kv_used` 0 … 1. What a worker does not tell counts as 0.
    """

    workers: int = 0
    first_token_ms: float = 0.0
    kv_used: float = 0.0


def conditions(workers: Iterable[Worker], models: Iterable[str]) -> dict[str, Condition]:
    """How some models are."""
    wanted = dict.fromkeys(models)
    sums: dict[str, list[float]] = {}
    for worker in workers:
        if worker.state != "ready":
            continue
        for served in worker.models:
            if served.name in wanted:
                told = sums.setdefault(served.name, [0, 0.0, 0.0, 0.0])
                told[0] += 1
                told[1] += worker.slots
                told[2] += worker.slots * served.first_token_ms
                told[3] += worker.slots * worker.kv_used
    return {
        name: Condition(int(count), first_token / slots, kv / slots)
        for name, (count, slots, first_token, kv) in sums.items()
    }


class Chooser:
    """One choice over time. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._small = False
        self._why = Why.LARGE
        self._changed_at = float("-inf")

    @property
    def prefer_small(self) -> bool:
        """What was decided last."""
        return self._small

    def decide(self, choice: Choice, large: Condition, small: Condition, now: float) -> Why:
        """Looks again. Whether the small one is preferred is in `prefer_small`."""
        before = self._small
        self._why = self._judge(choice, large, small, now)
        self._small = self._why not in (Why.LARGE, Why.NO_SMALL)
        if self._small != before:
            self._changed_at = now
        return self._why

    def _judge(self, choice: Choice, large: Condition, small: Condition, now: float) -> Why:
        if not small.workers:
            return Why.NO_SMALL
        if not large.workers:
            return Why.NO_LARGE
        if large.first_token_ms >= choice.first_token_ms:
            return Why.SLOW
        if large.kv_used >= choice.kv_used:
            return Why.MEMORY
        if not self._small:
            return Why.LARGE
        quick = large.first_token_ms < choice.return_below * choice.first_token_ms
        empty = large.kv_used < choice.return_below * choice.kv_used
        return Why.LARGE if quick and empty and now - self._changed_at >= choice.hold_s else Why.HELD
