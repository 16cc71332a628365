"""Admission and decision in a router that looks at its workers meanwhile; `benchmarks.admission` prints what it finds.

The router's registry reads the leases of all workers twice a second, which all renew them each second; another process says when
a request arrives, as a socket would. The time is from there until its worker is chosen: it has in it whatever else the router's
loop does.

Every second arrival is a bare one: the same way in and one PING to the store and back, and nothing is decided. What its time is
above that of an idle loop is the machine's and the looks'; what the others' is above its own is admission and decision. Beside
them stands the CPU that a request's own steps take, which no other process can lengthen much, and what the cycle collector did.
"""

from __future__ import annotations

import asyncio
import gc
import struct
import sys
import time
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry

from benchmarks.decision import MODEL, SLOTS, Core
from services.router.io.registry import Registry
from services.router.io.sources import LeaseSource
from services.router.metrics import RouterMetrics
from streamway.quota import Demand, reserve, send_settle
from streamway.runtime import collector
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.tenancy import Quota
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import Reply, Session

QUOTA: Final = Quota(1000, 1_000_000, 1_000_000_000)
MODEL_QUOTA: Final = Quota(500, None, 500_000_000)
LEASE_MS: Final = 15_000
_MOST_LIVE: Final = 2000

# All leases are renewed by the store itself, so that nothing but the router runs in this process.
_RENEW: Final = """
for number = 0, tonumber(ARGV[2]) - 1 do
  redis.call('HSET', 'sw:worker:{worker-' .. number .. '}', 'reported_ms', ARGV[1], 'load_tokens', (number * 7919) % 12000)
end
return 1
"""
# Says the time, as a double, `per second` times for `seconds`.
_ARRIVALS: Final = """
import os, struct, sys, time
per_s, until = float(sys.argv[1]), time.perf_counter() + float(sys.argv[2])
due = time.perf_counter()
while due < until:
    time.sleep(max(0.0, due - time.perf_counter()))
    os.write(1, struct.pack("d", time.perf_counter()))
    due += 1 / per_s
"""


@dataclass
class Timing:
    """What was measured, in microseconds: sorted, when it is over."""

    wall: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def sort(self) -> Timing:
        """Itself."""
        for times in (self.wall, self.bare, self.cpu, self.pauses):
            times.sort()
        return self


def at(times: list[float], part: float) -> float:
    """That part of sorted times is no longer."""
    return times[min(len(times) - 1, int(len(times) * part))] if times else 0.0


class Steps:
    """Runs a coroutine and adds up the CPU of its own steps, without what others do while it waits."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self.cpu_us = 0.0

    def __await__(self) -> Generator[Any, Any, None]:
        sent: Any = None
        while True:
            began = time.thread_time()
            try:
                waits_for = self._work.send(sent)
            except StopIteration:
                return
            finally:
                self.cpu_us += (time.thread_time() - began) * 1e6
            sent = yield waits_for


@contextmanager
def _collections(pauses: list[float]) -> Iterator[None]:
    """Notes how long each search of the cycle collector took."""
    began = 0.0

    def note(phase: str, _: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            pauses.append((time.perf_counter() - began) * 1e6)

    gc.callbacks.append(note)
    try:
        yield
    finally:
        gc.callbacks.remove(note)


class _Nobody:
    """A WorkerProbe; nobody is asked while the store answers."""

    async def answers(self, address: str) -> bool:
        return False


class LiveRouter:
    """The parts of a router that let in and decide, with the loop that looks at the workers."""

    def __init__(self, link: Link, workers: int, tenants: int) -> None:
        self._link = link
        self._workers = workers
        self._tenants = tenants
        self._clock = SystemClock()
        self._core = Core("ring", tenants, int(0.7 * workers * SLOTS))
        metrics = RouterMetrics(CollectorRegistry())
        source = LeaseSource(link, self._clock)
        core = self._core
        self.registry = Registry(
            source, core.ledger, core.fleet, core.strategy, _Nobody(), self._clock, metrics, poll_s=0.5, keep_s=30.0
        )
        self._live: list[Demand] = []
        self._number = 0
        self.timing = Timing()

    async def register(self, session: Session) -> None:
        """Leases of all workers, for the time of the benchmark."""
        now_ms = self._clock.unix() * 1000
        for number in range(self._workers):
            fields = (
                *("address", f"10.0.0.1:{number}", "models", f'[{{"name": "{MODEL}", "context_tokens": 8192}}]'),
                *("slots", SLOTS, "load_tokens", 0, "draining", 0, "healthy", 1, "reported_ms", f"{now_ms:.0f}"),
                *("prefill_ms", "0.125", "slot_ms", 3000, "began_ms", 1, "preload_depth", 4, "kv_used", "0.3"),
            )
            session.send(("HSET", keys.lease("worker", f"worker-{number}"), *fields), _ignore)
            session.send(("ZADD", keys.lease_index("worker"), f"{now_ms + 1e7:.0f}", f"worker-{number}"), _ignore)
        await session.call("PING")
        await self.registry.refresh()
        assert len(self.registry.all()) == self._workers
        # The first decision makes the ring.
        self._core.decide(self._clock.monotonic(), self._clock.unix() * 1000)

    async def renew(self, session: Session) -> None:
        """All leases each second, until cancelled."""
        while True:
            await session.call("EVAL", _RENEW, 0, f"{self._clock.unix() * 1000:.0f}", self._workers)
            await asyncio.sleep(1.0)

    async def bare(self, session: Session, arrived: float) -> None:
        """One that arrived then, by `time.perf_counter`, and for which the store is asked nothing."""
        await session.call("PING")
        self.timing.bare.append((time.perf_counter() - arrived) * 1e6)

    async def admit(self, session: Session, arrived: float) -> None:
        """One request that arrived then."""
        steps = Steps(self._admit(session, arrived))
        await steps
        self.timing.cpu.append(steps.cpu_us)

    async def _admit(self, session: Session, arrived: float) -> None:
        self._number += 1
        tenant = f"tenant-{self._core.draw.randrange(self._tenants)}"
        demand = Demand(f"live-{self._number}", tenant, MODEL, 600, QUOTA, MODEL_QUOTA)
        verdict = await reserve(session, demand, LEASE_MS, 0.9)
        self._core.decide(self._clock.monotonic(), self._clock.unix() * 1000)
        self.timing.wall.append((time.perf_counter() - arrived) * 1e6)
        assert verdict.refusal is None
        self._live.append(demand)
        if len(self._live) > _MOST_LIVE:
            send_settle(session, self._live.pop(0), 0, 100, _ignore)


async def measure_live(
    link: Link, scope: TaskScope, workers: int, tenants: int, per_s: float, seconds: float, *, settled: bool = True
) -> Timing:
    """`settled`: the cycle collector is set as in every service, and not left as Python has it."""
    session = await link.session()
    router = LiveRouter(link, workers, tenants)
    await router.register(session)
    loops = [scope.spawn(router.renew(session), "renew"), scope.spawn(router.registry.run(), "registry")]
    # A look and a renewal before anything counts.
    thresholds = gc.get_threshold()
    if settled:
        collector.settle()
    await asyncio.sleep(1.5)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ARRIVALS, str(per_s), str(seconds)), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    with _collections(router.timing.pauses):
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    for arrive in (router.admit, router.bare):
                        (arrived,) = struct.unpack("d", await child.stdout.readexactly(8))
                        group.create_task(arrive(session, arrived))
            except asyncio.IncompleteReadError:
                await child.wait()
    for loop in loops:
        loop.cancel()
    if settled:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    return router.timing.sort()


async def measure_look(link: Link, workers: int, looks: int = 20) -> tuple[float, float]:
    """Medians of a look at all workers: milliseconds of CPU in all, and the longest that it holds the loop at once."""
    session = await link.session()
    router = LiveRouter(link, workers, 10)
    await router.register(session)
    collector.settle()
    renewed = ("EVAL", _RENEW, 0)
    totals, holds = [], []
    for _ in range(looks):
        await session.call(*renewed, f"{time.time() * 1000:.0f}", workers)
        began = time.thread_time()
        await router.registry.refresh()
        totals.append((time.thread_time() - began) * 1000)
    for _ in range(looks):
        await session.call(*renewed, f"{time.time() * 1000:.0f}", workers)
        look = asyncio.ensure_future(router.registry.refresh())
        last, longest = time.thread_time(), 0.0
        # Takes its turn in every round of the loop: what passes between two of them, others have had.
        while not look.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
        await look
        holds.append(longest * 1000)
    return sorted(totals)[looks // 2], sorted(holds)[looks // 2]


def _ignore(_: Reply) -> None:
    """Nothing depends on the answer."""
