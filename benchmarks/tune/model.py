"""What a configuration gives: turns in virtual time, and on top of them connections to the engine and merged events.

A turn's way through lanes, window and engine is the simulation's. Which connection it gets, and how its tokens are merged into
events, is worked out afterwards from when it began and when each token was made: neither moves a queue. What they cost is not
simulated at all but measured (`benchmarks.tune.costs`).
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from benchmarks.simulate.results import Outcome, quantile
from benchmarks.simulate.scenario import Scenario
from benchmarks.simulate.world import World
from benchmarks.tune.costs import Costs
from benchmarks.tune.parameters import ENGINE_KEEPS_S, Configuration


@dataclass(frozen=True, slots=True)
class Figures:
    """First token and gap between two events at p99 in ms, shares of requests on a connection that was there and refused, µs of
    CPU a token, and the most connections that were kept without a request."""

    p99_ms: float
    reuse: float
    cost_us: float
    refused: float
    gap_p99_ms: float
    kept: int


class Model:
    """Weighs configurations on the same turns. Queues are simulated once for each depth and timeout."""

    def __init__(self, scenario: Scenario, seeds: Sequence[int], costs: Costs) -> None:
        self._scenario, self._seeds, self._costs = scenario, seeds, costs
        self._runs: dict[tuple[int, float], list[list[Outcome]]] = {}
        self._known: dict[Configuration, Figures] = {}

    @property
    def runs(self) -> int:
        """Turns were simulated so many times, once for each seed."""
        return len(self._runs) * len(self._seeds)

    def figures(self, configuration: Configuration) -> Figures:
        """Of all seeds together."""
        if configuration not in self._known:
            self._known[configuration] = self._weigh(configuration)
        return self._known[configuration]

    def _weigh(self, configuration: Configuration) -> Figures:
        waits: list[float] = []
        gaps: list[float] = []
        tokens = events = connections = served = asked = kept = 0
        for outcomes in self._outcomes(configuration):
            asked += len(outcomes)
            for ones in _by_worker(outcomes).values():
                new, most = connected(ones, configuration)
                told = merged(ones, configuration.flush_ms / 1000)
                for number, (one, times) in enumerate(zip(ones, told, strict=True)):
                    waits.append(one.wait_s * 1000 + (self._costs.connection_ms if number in new else 0.0))
                    gaps += [(after - before) * 1000 for before, after in pairwise(times)]
                    events += len(times)
                    tokens += len(one.token_times)
                served += len(ones)
                connections += len(new)
                kept = max(kept, most)
        costs = self._costs
        return Figures(
            quantile(waits, 0.99),
            1 - connections / max(1, served),
            costs.token_us + (costs.event_us * events + costs.connection_us * connections) / max(1, tokens),
            1 - served / max(1, asked),
            quantile(gaps, 0.99),
            kept,
        )

    def _outcomes(self, configuration: Configuration) -> list[list[Outcome]]:
        which = (configuration.preload_depth, configuration.queue_timeout_s)
        if which not in self._runs:
            depth, timeout_s = which
            asked = replace(self._scenario, preload_depth=depth, queue_timeout_s=timeout_s)
            self._runs[which] = [World(replace(asked, seed=seed)).run() for seed in self._seeds]
        return self._runs[which]


def _by_worker(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if one.first_at >= 0:
            found[one.worker].append(one)
    return found


def connected(ones: Sequence[Outcome], configuration: Configuration) -> tuple[set[int], int]:
    """Which of a worker's turns needed a new connection, and how many were kept at most: the pool's rule, last used first."""
    limit_s = min(configuration.kept_s or ENGINE_KEEPS_S, ENGINE_KEEPS_S)
    moments = [(one.begun_at, 1, number) for number, one in enumerate(ones)]
    moments += [(one.ended_at, 0, number) for number, one in enumerate(ones)]
    idle: list[float] = []
    new, most = set(), 0
    for now, begins, number in sorted(moments):
        idle = [since for since in idle if now - since < limit_s]
        if not begins:
            if len(idle) < configuration.kept_connections:
                insort(idle, now)
        elif idle:
            idle.pop()
        else:
            new.add(number)
        most = max(most, len(idle))
    return new, most


def merged(ones: Sequence[Outcome], flush_s: float) -> list[list[float]]:
    """When each event of a worker's turns goes out: the first token and the last at once, others with the worker's one tick."""
    told: list[list[float]] = [[] for _ in ones]
    marks = sorted((at, number) for number, one in enumerate(ones) for at in one.token_times)
    last = [one.token_times[-1] if one.token_times else 0.0 for one in ones]
    waiting: set[int] = set()
    tick = 0.0
    for at, number in marks:
        if waiting and at > tick:
            for each in waiting:
                told[each].append(tick)
            waiting.clear()
        if not told[number] or at == last[number]:
            waiting.discard(number)
            told[number].append(at)
        else:
            if not waiting:
                tick = at + flush_s
            waiting.add(number)
    for each in waiting:
        told[each].append(tick)
    return told
