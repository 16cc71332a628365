"""Keeps one process running: start, health gate, restart after a crash, stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.supervisor.core.backoff import Backoff
from services.supervisor.io.child import Child
from services.supervisor.io.configuration import complaint_of
from services.supervisor.io.health import Probe
from services.supervisor.io.journal import Journal
from services.supervisor.io.starting import Starter
from streamway.runtime.process import StartError

_PROBE_INTERVAL_S: Final = 0.05
# How often a process may crash before its first start counts as failed.
_START_ATTEMPTS: Final = 3
_REFUSED: Final = 2


@dataclass(frozen=True)
class Spec:
    """What to run and how to see that it works. `address` is where it listens, `operations` where its operations port is, for
    the ready file."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    address: str
    probe: Probe
    start_timeout_s: float
    # Lines with one of these are not shown.
    hush: tuple[str, ...] = ()
    # Descriptors of ours that it gets.
    descriptors: tuple[int, ...] = ()
    operations: str = ""


class Keeper:
    """One supervised process."""

    def __init__(self, spec: Spec, journal: Journal, backoff: Backoff, starter: Starter) -> None:
        self.spec = spec
        self._starter = starter
        self._journal = journal
        self._backoff = backoff
        self._child: Child | None = None

    @property
    def name(self) -> str:
        """Its name in logs and in the ready file."""
        return self.spec.name

    @property
    def pid(self) -> int:
        """Process id of the current life; 0 before the first."""
        return self._child.pid if self._child else 0

    @property
    def running(self) -> bool:
        """It was started and has not ended."""
        return self._child is not None and self._child.running

    async def start(self) -> None:
        """Starts it and returns when it takes work. Raises StartError with its own complaint when it refuses."""
        for attempt in range(1, _START_ATTEMPTS + 1):
            await self._spawn()
            code = await self._until_healthy()
            if code is None:
                return
            lines = self._child.last_lines if self._child else ()
            if code == _REFUSED or attempt == _START_ATTEMPTS:
                raise StartError(f"{self.name}: {complaint_of(tuple(lines)) or _ending(code)}")
            self._journal.note(f"{self.name} {_ending(code)} while starting; trying again")

    async def keep(self, restarted: Callable[[], None]) -> None:
        """Restarts it whenever it ends, until cancelled. `restarted` is called each time it takes work again."""
        while True:
            child = self._child
            if child is None:
                raise RuntimeError(f"{self.name} was not started")
            code = await child.wait()
            delay_s = self._backoff.after_crash(child.lived_s)
            self._journal.note(
                f"{self.name} {_ending(code)}; starting it again{f' in {delay_s:g} s' if delay_s else ''}"
            )
            await asyncio.sleep(delay_s)
            await self._spawn()
            try:
                healthy = await self._until_healthy() is None
            except StartError as problem:  # it was killed for taking too long: one more crash, not the end of the mesh
                self._journal.note(str(problem))
                healthy = False
            if healthy:
                restarted()

    async def stop(self, grace_s: float) -> None:
        """Drains it: SIGTERM, then SIGKILL after `grace_s`."""
        if self._child is None:
            return
        if not await self._child.stop(grace_s):
            self._journal.note(f"{self.name} did not end within {grace_s:g} s and was killed")
        self._child.close()

    async def _spawn(self) -> None:
        if self._child is not None:
            self._child.close()
        spec = self.spec
        self._child = Child(spec.command, spec.environment, self._show, spec.descriptors, self._starter)
        await self._child.start()

    def _show(self, line: str) -> None:
        if not any(words in line for words in self.spec.hush):
            self._journal.line(self.name, line)

    async def _until_healthy(self) -> int | None:
        """None when it takes work; its exit code when it ended first. Raises StartError when it takes too long."""
        child = self._child
        if child is None:
            raise RuntimeError(f"{self.name} was not started")
        self._journal.starting(self.name, "")
        while child.running:
            waiting = await self.spec.probe.waiting_for()
            if not waiting:
                self._journal.ready(self.name, child.lived_s)
                return None
            self._journal.starting(self.name, waiting)
            if child.lived_s > self.spec.start_timeout_s:
                await child.kill()
                raise StartError(f"{self.name} was not ready after {self.spec.start_timeout_s:g} s: {waiting}")
            await asyncio.sleep(_PROBE_INTERVAL_S)
        return await child.wait()


def _ending(code: int) -> str:
    """How a process ended, for people."""
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with code {code}"
