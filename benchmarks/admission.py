"""What it takes to let one request in and choose its worker: python -m benchmarks.admission

A reservation in a real Valkey, over the router's own link, for one of many tenants with limits, then the decision of
`benchmarks.decision`. Requests come one after the other and many at a time; what many ask in one tick shares a write, so then the
time is that of the burst. Then in a router that looks at its workers meanwhile, see `benchmarks.admission_live`.

Wall time on a machine that others use is mostly theirs. So beside each figure stands that of a bare round trip in the same run,
to the same store and back with nothing decided, and the CPU that the steps of a request take in this process.
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
import uvloop

from benchmarks.admission_live import LEASE_MS, MODEL_QUOTA, QUOTA, Steps, Timing, at, measure_live, measure_look
from benchmarks.decision import World
from streamway.quota import Demand, reserve, send_settle
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.valkey.link import Link
from streamway.valkey.session import Reply, Session
from tests.support.valkey_server import ValkeyServer

_GOAL_US: Final = 1000.0
_COLUMNS: Final = "p50 µs | p99 µs | bare p50 | bare p99 | CPU p50 | CPU p99"


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
        self.timing = Timing()

    async def admit(self) -> None:
        """One request, timed, and a bare round trip behind it."""
        steps = Steps(self._admit())
        await steps
        self.timing.cpu.append(steps.cpu_us)
        began = time.perf_counter()
        await self._session.call("PING")
        self.timing.bare.append((time.perf_counter() - began) * 1e6)

    async def _admit(self) -> None:
        """Reserved and placed. The end of an earlier one goes out with it."""
        self._number += 1
        tenant = f"tenant-{self._draw.randrange(self._tenants)}"
        demand = Demand(f"{self._name}-{self._number}", tenant, "m", 600, QUOTA, MODEL_QUOTA)
        began = time.perf_counter()
        verdict = await reserve(self._session, demand, LEASE_MS, 0.9)
        self._world.decide()
        self.timing.wall.append((time.perf_counter() - began) * 1e6)
        assert verdict.refusal is None
        self._live.append(demand)
        if len(self._live) > 2000:
            send_settle(self._session, self._live.pop(0), 0, 100, _ignore)


def _ignore(_: Reply) -> None:
    """Its end is counted; nothing depends on the answer."""


async def measure(session: Session, workers: int, tenants: int, count: int, at_once: int) -> Timing:
    """So many at a time."""
    admission = Admission(session, World("ring", workers, tenants), tenants, f"at-once-{at_once}")
    for _ in range(count // at_once):
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(admission.admit())
    return admission.timing.sort()


def _row(first: str, timing: Timing, *, judged: bool = True) -> str:
    goal = ("reached" if at(timing.wall, 0.99) <= _GOAL_US else "missed") if judged else ""
    figures = [at(times, part) for times in (timing.wall, timing.bare, timing.cpu) for part in (0.5, 0.99)]
    return f"| {first} | {' | '.join(f'{figure:,.0f}' for figure in figures)} | {goal} |"


async def _run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            async with TaskScope("benchmark") as scope:
                link = Link(server.url, SystemClock())
                running = scope.spawn(link.run(), "link")
                session = await link.session()
                print(f"{args.workers} workers, {args.tenants} tenants with limits; goal: p99 ≤ 1 ms one at a time\n")
                print(f"| at once | {_COLUMNS} | goal |")
                print("|---|---|---|---|---|---|---|---|")
                for at_once in (1, 10, 100):
                    timing = await measure(session, args.workers, args.tenants, args.requests, at_once)
                    print(_row(str(at_once), timing, judged=at_once == 1))
                print(
                    f"\nin a router that looks at its workers; {args.per_s} requests/s for {args.seconds} s; same goal\n"
                )
                print(f"| workers, collector | {_COLUMNS} | goal | searches, longest ms |")
                print("|---|---|---|---|---|---|---|---|---|")
                # A few workers show what the machine does to the same measurement.
                for workers, settled in ((10, True), (args.workers, True), (args.workers, False)):
                    timing = await measure_live(
                        link, scope, workers, args.tenants, 2 * args.per_s, args.seconds, settled=settled
                    )
                    name = f"{workers}, {'as in services' if settled else 'as Python has it'}"
                    print(_row(name, timing), f"{len(timing.pauses)}, {at(timing.pauses, 1.0) / 1000:.1f} |")
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
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
