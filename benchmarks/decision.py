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

MODEL: Final = "m"
SLOTS: Final = 16
_GOAL_US: Final = 1000.0


class Core:
    """What decides in a router, and the requests of `tenants` tenants with ten sessions each: at most `most_running` run."""

    def __init__(self, name: StrategyName, tenants: int, most_running: int) -> None:
        self.draw = random.Random(3)
        self.strategy: Strategy = make_strategy(name, StrategyOptions())
        self.ledger = Ledger()
        self.fleet = Fleet(self.ledger, queue_limit=8, prefill_ms=0.125)
        self._running: deque[str] = deque()
        self._most_running = most_running
        # Prompts of 4 KiB; the tenants' system prompts differ.
        self._requests = [
            _request(f"tenant-{tenant}", f"{tenant:08x}{session:08x}")
            for tenant in range(tenants)
            for session in range(10)
        ]

    def decide(self, now: float, now_ms: float) -> None:
        """One request, from its fields to the books, and the end of the oldest. `now`: seconds that do not go back."""
        request = self.draw.choice(self._requests)
        wanted = wanted_of(request, 4096, None, 256, blocks=self.strategy.wants_blocks)
        pool = self.fleet.pool(MODEL)
        assert pool is not None
        decision = self.strategy.choose(wanted, pool, now)
        assert decision.worker
        self.strategy.placed(wanted, decision, now)
        generation = str(self.draw.getrandbits(64))
        self.ledger.add(generation, decision.worker, decision.tokens, now_ms)
        self._running.append(generation)
        if len(self._running) > self._most_running:
            self.ledger.settle(self._running.popleft())


class World:
    """A router's core with `workers` workers at seven tenths of the load, in a time of its own."""

    def __init__(self, name: StrategyName, workers: int, tenants: int) -> None:
        self.core = Core(name, tenants, int(0.7 * workers * SLOTS))
        self.workers = [_worker(number) for number in range(workers)]
        self._now = 0.0
        self.look()

    def look(self) -> None:
        """What a refresh does: new reports of everybody."""
        self._now += 0.5
        at_ms, draw = self._now * 1000, self.core.draw
        for number, worker in enumerate(self.workers):
            load, tasks = draw.randrange(12_000), draw.randrange(SLOTS)
            self.workers[number] = replace(
                worker, load_tokens=load, lanes=(tasks, 0, 0, 0), reported_ms=at_ms, polled_ms=at_ms
            )
        self.core.ledger.age(at_ms)
        self.core.fleet.adopt(self.workers)
        self.core.strategy.keep_only(self.core.fleet.models, {worker.id for worker in self.workers})

    def decide(self) -> None:
        """One request."""
        self._now += 0.0001
        self.core.decide(self._now, self._now * 1000)

    def come(self) -> None:
        """One more worker, and the first decision that knows it."""
        self.workers.append(
            replace(_worker(len(self.workers)), reported_ms=self._now * 1000, polled_ms=self._now * 1000)
        )
        self.core.fleet.adopt(self.workers)
        self.decide()


def _worker(number: int) -> Worker:
    return Worker(f"worker-{number}", f"10.0.0.1:{number}", (ServedModel(MODEL, 8192),), SLOTS, slot_ms=3000.0)


def _request(tenant: str, session: str) -> common_pb2.GenerationRequest:
    messages = [common_pb2.Message(role="system", content=f"{tenant} {'x' * 2000}")]
    messages.append(common_pb2.Message(role="user", content=f"{session} {'y' * 2000}"))
    return common_pb2.GenerationRequest(model=MODEL, tenant=tenant, session=session, messages=messages)


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
