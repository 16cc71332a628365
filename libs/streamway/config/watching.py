"""Reads a part of the configuration again when its files change. What is good replaces the whole; what is not changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter

from streamway.config.fingerprint import fingerprint
from streamway.runtime.start import StartError
from streamway.runtime.threads import in_thread

T = TypeVar("T")

_log = structlog.get_logger("config")
# A file that is refused may be good without having changed: what it names has come meanwhile.
_AGAIN_AFTER: Final = 10


class Reloads(NamedTuple):
    """How a part of the configuration is called: in the log, by its metric, in the metric's description."""

    part: str
    metric: str
    what: str


class ConfigWatch(Generic[T]):
    """`value` is what counts now. It is read once here; `run` looks for changes every `poll_s` seconds.

    `load` reads everything anew, in a thread; it is given what counts, None at the start, and raises StartError with one line
    for what can't be used. `paths` names the files to look at, whether they are there or not. Raises what `load` raises.
    """

    def __init__(
        self,
        load: Callable[[T | None], T],
        paths: Callable[[T | None], Sequence[Path]],
        poll_s: float,
        name: Reloads,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._load = load
        self._paths = paths
        self._poll_s = poll_s
        self._name = name
        self._reloads: Counter | None = None
        if registry is not None:
            description = (
                f"Times that changed {name.what} were taken (applied) or refused, the last good ones kept (refused)."
            )
            self._reloads = Counter(name.metric, description, ["outcome"], registry=registry)
            for outcome in ("applied", "refused"):
                self._reloads.labels(outcome)
        # Before reading: what changes meanwhile differs from it at the next look.
        self._seen = fingerprint(paths(None))
        self.value = load(None)
        self._refused = ""
        self._looks_since_refusal = 0

    async def run(self) -> None:
        """Looks again and again until cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            await self.look()

    async def look(self) -> bool:
        """Looks once. True when something else counts now."""
        seen = fingerprint(self._paths(self.value))
        if seen == self._seen:
            self._looks_since_refusal += 1
            if not self._refused or self._looks_since_refusal < _AGAIN_AFTER:
                return False
        self._seen, self._looks_since_refusal = seen, 0
        before = self.value
        try:
            found = await in_thread(lambda: self._load(before))
        except StartError as problem:
            self._refuse(str(problem))
            return False
        self._refused = ""
        if found == before:
            return False
        self.value = found
        if self._reloads is not None:
            self._reloads.labels("applied").inc()
        _log.info("config_reloaded", part=self._name.part)
        return True

    def _refuse(self, problem: str) -> None:
        """One problem is told and counted once, however often it is met."""
        if problem == self._refused:
            return
        self._refused = problem
        if self._reloads is not None:
            self._reloads.labels("refused").inc()
        _log.error("config_not_reloaded", part=self._name.part, problem=problem)
