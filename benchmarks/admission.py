"""What it takes to let one request in and choose its worker: python -m benchmarks.admission

A reservation in a real Valkey, over the router's own link, for one of many tenants with limits, then the decision of
`benchmarks.decision`. Requests come one after the other and many at a time; what many ask in one tick shares a write, so then the
time is that of the burst. Then in a router that looks at its workers meanwhile, see `benchmarks.admission_live`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import tempfile
import time
from pathlib import Path
from typing import Final

import structlog

from benchmarks.admission_live import LEASE_MS, MODEL_QUOTA, QUOTA, measure_live, measure_look
from benchmarks.decision import World
from streamway.quota import Demand, reserve, send_settle
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.valkey.link import Link
from streamway.valkey.session import Reply, Session
from tests.support.valkey_server import ValkeyServer

_GOAL_US: Final = 1000.0


class Admission:
    """Lets one request after the other in, and out again a little later."""

    def __init__(self, session: Session, world: World, tenants: int, name: str) -> None:
        self._session = session
        self._world = world
        self._tenants = tenants
        self._name = name
        self._draw = random.Random(5)
        self._live: list[Demand] = []
        self._number = 0
        self.times_us: list[float] = []

    async def admit(self) -> None:
        """One request: reserved, placed, timed. The end of an earlier one goes out with it."""
        self._number += 1
        tenant = f"tenant-{self._draw.randrange(self._tenants)}"
        demand = Demand(f"{self._name}-{self._number}", tenant, "m", 600, QUOTA, MODEL_QUOTA)
        began = time.perf_counter()
        verdict = await reserve(self._session, demand, LEASE_MS, 0.9)
        self._world.decide()
        self.times_us.append((time.perf_counter() - began) * 1e6)
        assert verdict.refusal is None
        self._live.append(demand)
        if len(self._live) > 2000:
            send_settle(self._session, self._live.pop(0), 0, 100, _ignore)


def _ignore(_: Reply) -> None:
    """Its end is counted; nothing depends on the answer."""


async def measure(session: Session, workers: int, tenants: int, count: int, at_once: int) -> tuple[float, float]:
    """Microseconds at p50 and p99."""
    admission = Admission(session, World("ring", workers, tenants), tenants, f"at-once-{at_once}")
    for _ in range(count // at_once):
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(admission.admit())
    times = sorted(admission.times_us)
    return times[len(times) // 2], times[int(len(times) * 0.99)]


async def _run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            async with TaskScope("benchmark") as scope:
                link = Link(server.url, SystemClock())
                running = scope.spawn(link.run(), "link")
                session = await link.session()
                print(f"{args.workers} workers, {args.tenants} tenants with limits; goal: p99 ≤ 1 ms one at a time\n")
                print("| at once | p50 µs | p99 µs | goal |")
                print("|---|---|---|---|")
                for at_once in (1, 10, 100):
                    p50, p99 = await measure(session, args.workers, args.tenants, args.requests, at_once)
                    reached = ("reached" if p99 <= _GOAL_US else "missed") if at_once == 1 else ""
                    print(f"| {at_once} | {p50:.0f} | {p99:.0f} | {reached} |")
                print(
                    f"\nin a router that looks at its workers; {args.per_s} requests/s for {args.seconds} s; same goal\n"
                )
                print("| workers | requests | p50 µs | p99 µs | goal |")
                print("|---|---|---|---|---|")
                # A few workers show what the machine does to the same measurement.
                for workers in (10, args.workers):
                    p50, p99, count = await measure_live(link, scope, workers, args.tenants, args.per_s, args.seconds)
                    reached = "reached" if p99 <= _GOAL_US else "missed"
                    print(f"| {workers} | {count} | {p50:.0f} | {p99:.0f} | {reached} |")
                total, longest = await measure_look(link, args.workers)
                print(f"\none look at {args.workers} workers: {total:.1f} ms of CPU, at most {longest:.2f} ms at once")
                running.cancel()
        finally:
            server.stop()


def main() -> None:
    """Prints the tables."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--per-s", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
