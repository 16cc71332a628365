"""What one decision takes where there are many workers and tenants: python -m benchmarks.decision

The router's own core, with what it does for each request: the request as a decision sees it, the pool brought up to date, the
choice, and the books. Loads change with each decision, as they do live. Beside it what is paid now and then: taking new reports
of all workers, and a worker that comes.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, get_args

from services.router.core.estimate import wanted_of
from services.router.core.fleet import Fleet
from services.router.core.ledger import Ledger
from services.router.core.strategy import Strategy, StrategyName, StrategyOptions, make_strategy
from services.router.core.worker import ServedModel, Worker
from streamway.v1 import common_pb2

_MODEL: Final = "m"
_SLOTS: Final = 16
_GOAL_US: Final = 1000.0


class World:
    """A router's core with `workers` workers, `tenants` tenants with ten sessions each, at seven tenths of the load."""

    def __init__(self, name: StrategyName, workers: int, tenants: int) -> None:
        self._draw = random.Random(3)
        self.strategy: Strategy = make_strategy(name, StrategyOptions())
        self._ledger = Ledger()
        self._fleet = Fleet(self._ledger, queue_limit=8, prefill_ms=0.125)
        self.workers = [_worker(number) for number in range(workers)]
        self._running: deque[str] = deque()
        self._most_running = int(0.7 * workers * _SLOTS)
        # Prompts of 4 KiB; the tenants' system prompts differ.
        self._requests = [
            _request(f"tenant-{tenant}", f"{tenant:08x}{session:08x}")
            for tenant in range(tenants)
            for session in range(10)
        ]
        self._now = 0.0
        self.look()

    def look(self) -> None:
        """What a refresh does: new reports of everybody."""
        self._now += 0.5
        at_ms = self._now * 1000
        for number, worker in enumerate(self.workers):
            load, tasks = self._draw.randrange(12_000), self._draw.randrange(_SLOTS)
            self.workers[number] = replace(worker, load_tokens=load, tasks=tasks, reported_ms=at_ms, polled_ms=at_ms)
            self._ledger.seen(self.workers[number])
        self._ledger.age(at_ms)
        self._fleet.adopt(self.workers)
        self.strategy.keep_only(self._fleet.models, {worker.id for worker in self.workers})

    def decide(self) -> None:
        """One request, from its fields to the books."""
        request = self._draw.choice(self._requests)
        wanted = wanted_of(request, 4096, None, 256, blocks=self.strategy.wants_blocks)
        pool = self._fleet.pool(_MODEL)
        assert pool is not None
        decision = self.strategy.choose(wanted, pool, self._now)
        assert decision.worker
        self.strategy.placed(wanted, decision, self._now)
        generation = str(self._draw.getrandbits(64))
        self._ledger.add(generation, decision.worker, decision.tokens, self._now * 1000)
        self._running.append(generation)
        self._now += 0.0001
        if len(self._running) > self._most_running:
            self._ledger.settle(self._running.popleft())

    def come(self) -> None:
        """One more worker, and the first decision that knows it."""
        self.workers.append(
            replace(_worker(len(self.workers)), reported_ms=self._now * 1000, polled_ms=self._now * 1000)
        )
        self._ledger.seen(self.workers[-1])
        self._fleet.adopt(self.workers)
        self.decide()


def _worker(number: int) -> Worker:
    return Worker(f"worker-{number}", f"10.0.0.1:{number}", (ServedModel(_MODEL, 8192),), _SLOTS, slot_ms=3000.0)


def _request(tenant: str, session: str) -> common_pb2.GenerationRequest:
    messages = [common_pb2.Message(role="system", content=f"{tenant} {'x' * 2000}")]
    messages.append(common_pb2.Message(role="user", content=f"{session} {'y' * 2000}"))
    return common_pb2.GenerationRequest(model=_MODEL, tenant=tenant, session=session, messages=messages)


def _times_us(work: Callable[[], None], count: int) -> list[float]:
    """Sorted, in microseconds. The collector runs before, not in between: a router's heap is not this one's."""
    gc.collect()
    gc.disable()
    times = []
    try:
        for _ in range(count):
            began = time.perf_counter()
            work()
            times.append((time.perf_counter() - began) * 1e6)
    finally:
        gc.enable()
    return sorted(times)


def measure(name: StrategyName, workers: int, tenants: int, decisions: int) -> dict[str, float]:
    """Microseconds, of decisions at p50 and p99, of a look at all workers, and of a worker that comes."""
    world = World(name, workers, tenants)
    for _ in range(min(decisions, 10 * workers)):
        world.decide()
    times: list[float] = []
    for _ in range(10):
        times += _times_us(world.decide, decisions // 10)
        world.look()
    times.sort()
    return {
        "p50": times[len(times) // 2],
        "p99": times[int(len(times) * 0.99)],
        "look": _times_us(world.look, 5)[2],
        "come": _times_us(world.come, 5)[2],
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--decisions", type=int, default=20_000)
    args = parser.parse_args()
    print(f"{args.workers} workers, {args.tenants} tenants, {args.decisions} decisions a strategy; goal: p99 ≤ 1 ms\n")
    print("| strategy | p50 µs | p99 µs | goal | new reports of all, ms | a worker comes, ms |")
    print("|---|---|---|---|---|---|")
    for name in get_args(StrategyName):
        found = measure(name, args.workers, args.tenants, args.decisions)
        reached = "reached" if found["p99"] <= _GOAL_US else "missed"
        print(
            f"| {name} | {found['p50']:.0f} | {found['p99']:.0f} | {reached} | {found['look'] / 1000:.1f}"
            f" | {found['come'] / 1000:.1f} |"
        )


if __name__ == "__main__":
    main()
