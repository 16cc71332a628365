"""Whose turn it is: deficit round robin over tenants, counted in tokens.

A tenant whose turn comes is granted `QUANTUM_TOKENS` × its weight and starts tasks while their cost is covered; then it is the
next one's turn. Over time each tenant that always has something waiting gets tokens in proportion to its weight, whatever the
size of its tasks. (Shreedhar and Varghese, 1995.)
"""

from __future__ import annotations

import bisect
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

# Less than any task costs: a turn that lasts longer than its tenant's short queue would be cut, and the weights with it.
QUANTUM_TOKENS: Final = 16
# Rounds of grants that a tenant owes at most, whatever it started out of turn: it gets its turns again after these.
_MOST_OWED_ROUNDS: Final = 128
# Tenants of which a balance is kept while they wait for nothing.
_MOST_REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """One waiting task in the order of its tenant: priority, highest first, then arrival. `cost` is in tokens."""

    order: tuple[int, int]
    id: str
    cost: int = field(compare=False)


@dataclass(slots=True)
class _Flow:
    """What one tenant has waiting, and its balance in tokens."""

    weight: int = 1
    balance: float = 0.0
    # The round in which it had nothing waiting last.
    rested_at: float = 0.0
    queue: list[Waiting] = field(default_factory=list)


class DeficitRoundRobin:
    """Orders the waiting tasks of several tenants. Costs are estimates, put right with `correct` when a task has ended."""

    def __init__(self) -> None:
        self._flows: OrderedDict[str, _Flow] = OrderedDict()
        # Tenants with something waiting, the one whose turn it is first.
        self._turns: deque[str] = deque()
        # How often everybody has had a turn; each turn is its part of a round.
        self._rounds = 0.0

    def __len__(self) -> int:
        return sum(len(self._flows[tenant].queue) for tenant in self._turns)

    def add(self, tenant: str, weight: int, task: Waiting) -> None:
        """One more waits. The weight is that of the tenant from now on."""
        flow = self._flow(tenant)
        flow.weight = max(1, weight)
        if not flow.queue:
            self._turns.append(tenant)
            # What it owed is paid by the turns it would have had. Who starts out of turn and seldom waits would owe for ever.
            earned = (self._rounds - flow.rested_at) * QUANTUM_TOKENS * flow.weight
            flow.balance = min(0.0, flow.balance + earned)
        bisect.insort(flow.queue, task)

    def remove(self, tenant: str, task: Waiting) -> None:
        """It waits no more and has cost nothing."""
        flow = self._flows[tenant]
        del flow.queue[bisect.bisect_left(flow.queue, task)]
        if not flow.queue:
            self._rest(tenant, flow)

    def take(self, tenant: str, task: Waiting) -> None:
        """It starts, in turn or out of it; its tenant pays for it, as far as it may owe."""
        flow = self._flows[tenant]
        most_owed = -_MOST_OWED_ROUNDS * QUANTUM_TOKENS * flow.weight
        flow.balance = max(flow.balance - task.cost, min(flow.balance, most_owed))
        self.remove(tenant, task)

    def peek(self) -> Waiting | None:
        """A task that could start next; the one whose turn it is may be another when that is the larger."""
        return self._flows[self._turns[0]].queue[0] if self._turns else None

    def next(self) -> tuple[str, Waiting] | None:
        """Whose task starts next, and which; taken out and paid. None when nothing waits."""
        if not self._turns:
            return None
        while True:
            for _ in range(len(self._turns)):
                tenant = self._turns[0]
                flow = self._flows[tenant]
                if flow.queue[0].cost <= flow.balance:
                    task = flow.queue[0]
                    self.take(tenant, task)
                    return tenant, task
                self._turns.rotate(-1)
                self._rounds += 1 / len(self._turns)
                self._grant(self._turns[0], 1)
            # Rounds in which nobody could have started anything are granted at once.
            flows = [self._flows[tenant] for tenant in self._turns]
            short = min((flow.queue[0].cost - flow.balance) / (QUANTUM_TOKENS * flow.weight) for flow in flows)
            rounds = math.ceil(short) - 1
            if rounds > 0:
                self._rounds += rounds
                for tenant in self._turns:
                    self._grant(tenant, rounds)

    def correct(self, tenant: str, estimated: int, used: int) -> None:
        """What a task of the tenant has really cost, in tokens."""
        self._flow(tenant).balance += estimated - used

    def _grant(self, tenant: str, rounds: int) -> None:
        flow = self._flows[tenant]
        flow.balance += rounds * QUANTUM_TOKENS * flow.weight

    def _flow(self, tenant: str) -> _Flow:
        flow = self._flows.get(tenant)
        if flow is None:
            flow = self._flows[tenant] = _Flow(rested_at=self._rounds)
            if len(self._flows) > _MOST_REMEMBERED:
                idle = next((name for name, other in self._flows.items() if not other.queue), None)
                if idle is not None:
                    del self._flows[idle]
        return flow

    def _rest(self, tenant: str, flow: _Flow) -> None:
        """Nothing of it waits. It keeps what it owes, and nothing that it has not used: nobody saves up while away."""
        self._turns.remove(tenant)
        flow.rested_at = self._rounds
        flow.balance = min(flow.balance, 0.0)
        self._flows.move_to_end(tenant)
