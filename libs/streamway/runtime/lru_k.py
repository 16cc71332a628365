"""Which of many things to give up: LRU-K with K = 2 (O'Neil, O'Neil, Weikum 1993).

    uses of one thing  ──x─x────────x──────xx──►   uses closer than `correlated_s` are one: a retry, the tool calls of a turn
                         last but one    last

What was used once goes first, the longest unused before others; then whatever's last but one use is oldest. What was given up is
remembered for `retained_s`, so that something used again and again is known when it comes back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Rank(NamedTuple):
    """The lowest goes first: `times` is 1 or 2, `at` the last use of the former and the last but one of the latter."""

    times: int
    at: float


@dataclass(slots=True)
class _Uses:
    """`first` and `last` of the latest burst; `before`: the end of the burst before it, None where there was none."""

    first: float
    last: float
    before: float | None = None

    @property
    def rank(self) -> Rank:
        return Rank(1, self.last) if self.before is None else Rank(2, self.before)


class LruK(Generic[K]):
    """Uses of what is kept, and for a while of what was: of at most twice as many as are kept. Times are the caller's clock."""

    def __init__(self, correlated_s: float, retained_s: float) -> None:
        self._correlated_s = correlated_s
        self._retained_s = retained_s
        self._kept: dict[K, _Uses] = {}
        self._gone: OrderedDict[K, _Uses] = OrderedDict()
        # Those used once, by their last use: times do not go back.
        self._once: OrderedDict[K, None] = OrderedDict()
        # Of the others; may hold times that are true no more. `number` keeps things from being compared.
        self._order: list[tuple[float, int, K]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    @property
    def remembered(self) -> int:
        """Things that were given up and are known still."""
        return len(self._gone)

    def used(self, key: K, now: float) -> None:
        """One more use of something that is kept from now on."""
        uses = self._kept.get(key)
        back = uses is None
        if uses is None:
            uses = self._gone.pop(key, None)
            if uses is not None and now - uses.last > self._retained_s:
                uses = None
            self._kept[key] = uses = uses or _Uses(now, now)
        before = None if back else uses.before
        if now - uses.last > self._correlated_s:
            uses.before, uses.first = uses.last, now
        uses.last = now
        if uses.before is None:
            self._once[key] = None
            self._once.move_to_end(key)
        elif uses.before != before:
            self._once.pop(key, None)
            self._push(key, uses.before)

    def once(self, key: K) -> bool:
        """It was used no more than once."""
        return self._kept[key].before is None

    def last(self, key: K) -> float:
        """When it was used last."""
        return self._kept[key].last

    def rank(self, key: K) -> Rank:
        """Where something that is kept stands."""
        return self._kept[key].rank

    def victim(self, spared: Callable[[K], bool]) -> K | None:
        """What goes first, apart from what is spared. None: everything is."""
        found = next((key for key in self._once if not spared(key)), None)
        if found is not None:
            return found
        passed: list[tuple[float, int, K]] = []
        while self._order:
            before, _, key = self._order[0]
            uses = self._kept.get(key)
            if uses is None or uses.before != before:
                heappop(self._order)
            elif spared(key):
                passed.append(heappop(self._order))
            else:
                found = key
                break
        for each in passed:
            heappush(self._order, each)
        return found

    def give_up(self, key: K, now: float) -> None:
        """It is kept no more, and remembered."""
        uses = self._kept.pop(key, None)
        if uses is None:
            return
        self._once.pop(key, None)
        self._gone[key] = uses
        self._gone.move_to_end(key)
        while self._gone:
            oldest = next(iter(self._gone))
            few = len(self._gone) <= 2 * max(1, len(self._kept))
            if few and now - self._gone[oldest].last <= self._retained_s:
                return
            del self._gone[oldest]

    def forget(self, key: K) -> None:
        """It is neither kept nor remembered."""
        self._kept.pop(key, None)
        self._once.pop(key, None)
        self._gone.pop(key, None)

    def _push(self, key: K, before: float) -> None:
        self._number += 1
        heappush(self._order, (before, self._number, key))
        if len(self._order) > 2 * len(self._kept) + 64:
            self._order = [
                (uses.before, number, key)
                for number, (key, uses) in enumerate(self._kept.items())
                if uses.before is not None
            ]
            heapify(self._order)
            self._number = len(self._order)
