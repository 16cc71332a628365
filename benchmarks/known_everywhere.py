"""How long until every router knows of a change: python -m benchmarks.known_everywhere

What routers have for it, several times in this process, on one Valkey and one file of tenants, with the shipped intervals. A
quota is changed in the file; calls fail at one router until its breaker opens, and succeed later until it closes. The time is
until the last of the others goes by it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from services.router.core.breaker import State, Waits
from services.router.core.breakers import BreakerOptions
from services.router.io.breaker_board import BreakerBoard
from services.router.metrics import RouterMetrics
from streamway.config import SharedSettings
from streamway.errors import EngineFailed
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.tenancy import TierName
from streamway.tenancy.watching import TenancyWatch
from streamway.valkey.link import Link
from tests.support.valkey_server import ValkeyServer

_WHOSE: Final = ("w0", "m", TierName.GOLD)
_FAILED: Final = EngineFailed("w0", "the engine closed the connection")
# Openings wait longer than it takes to hear of them, and no longer than the benchmark may take.
_WAITS: Final = Waits(first_s=1.5, longest_s=1.5, jitter=0.0)


async def _until(condition: Callable[[], bool]) -> float:
    began = time.perf_counter()
    while not condition():
        await asyncio.sleep(0.002)
    return time.perf_counter() - began


def _rows(requests: int) -> str:
    return f"tenants: {{acme: {{tier: gold, requests_per_minute: {requests}}}}}\nanonymous: acme\n"


async def _quota(watches: list[TenancyWatch], path: Path, limit: int) -> float:
    path.write_text(_rows(limit))
    return await _until(
        lambda: all(watch.tenancy.tenants["acme"].quota.requests_per_minute == limit for watch in watches)
    )


async def _breaker(boards: list[BreakerBoard]) -> tuple[float, float]:
    """Until it is open everywhere, and until it is closed again."""
    first, others = boards[0], boards[1:]
    while first.state(*_WHOSE) is State.CLOSED:
        first.failed(first.placed(*_WHOSE), _FAILED)
    opened = await _until(lambda: all(board.state(*_WHOSE) is not State.CLOSED for board in others))
    await _until(lambda: first.state(*_WHOSE) is State.HALF_OPEN)
    while first.state(*_WHOSE) is State.HALF_OPEN:
        first.finished(first.placed(*_WHOSE))
    return opened, await _until(lambda: all(board.state(*_WHOSE) is State.CLOSED for board in others))


async def _run(routers: int, repeats: int) -> None:
    clock = SystemClock()
    times: dict[str, list[float]] = {"changed quota": [], "opened breaker": [], "closed breaker": []}
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        path = Path(folder) / "tenants.yaml"
        path.write_text(_rows(1000))
        try:
            async with TaskScope("benchmark") as scope:
                loops, watches, boards = [], [], []
                for _ in range(routers):
                    link = Link(server.url, clock)
                    loops.append(scope.spawn(link.run(), "link"))
                    await link.session()
                    watches.append(TenancyWatch(SharedSettings(tenants_file=path)))
                    boards.append(
                        BreakerBoard(
                            *(BreakerOptions(waits=_WAITS), link, clock, RouterMetrics(CollectorRegistry())),
                            *(random.random, lambda: {"m"}, lambda: {"w0", "w1"}),
                        )
                    )
                    for run in (watches[-1].run(), boards[-1].run()):
                        loops.append(scope.spawn(run, "look"))
                        # Their looks are spread over the interval, as those of processes are.
                        await asyncio.sleep(random.uniform(0, 0.5))
                for number in range(repeats):
                    times["changed quota"].append(await _quota(watches, path, 1001 + number))
                    opened, closed = await _breaker(boards)
                    times["opened breaker"].append(opened)
                    times["closed breaker"].append(closed)
                for loop in loops:
                    loop.cancel()
        finally:
            server.stop()
    print(
        f"{routers} routers, {repeats} times; goal: ≤ 1 s\n\n| change | median s | longest s | goal |\n|---|---|---|---|"
    )
    for name, found in times.items():
        found.sort()
        reached = "reached" if found[-1] <= 1 else "missed"
        print(f"| {name} | {found[len(found) // 2]:.2f} | {found[-1]:.2f} | {reached} |")


def main() -> None:
    """Prints the table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routers", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    asyncio.run(_run(args.routers, args.repeats))


if __name__ == "__main__":
    main()
