"""Reads tenants and keys again when their files change. What is good replaces the whole; what is not changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from streamway.config import SharedSettings
from streamway.config.base import config_file
from streamway.config.fingerprint import fingerprint
from streamway.runtime.start import StartError
from streamway.runtime.threads import in_thread
from streamway.tenancy.loading import load_tenancy
from streamway.tenancy.model import Tenancy

_log = structlog.get_logger("tenancy")
# A file that is refused may be good without having changed: what it names has come meanwhile.
_AGAIN_AFTER: Final = 10


class TenancyWatch:
    """`tenancy` is what counts now. It is read once here; `run` looks for changes.

    `objection` says why a tenancy can't be used in this process, "" when it can. Raises StartError.
    """

    def __init__(
        self,
        shared: SharedSettings,
        registry: CollectorRegistry | None = None,
        objection: Callable[[Tenancy], str] = lambda _: "",
    ) -> None:
        self._shared = shared
        self._objection = objection
        self._reloads: Counter | None = None
        self._tenants: Gauge | None = None
        if registry is not None:
            self._reloads = Counter(
                "streamway_config_reloads",
                "Times that changed tenants and keys were taken (applied) or refused, the last good ones kept (refused).",
                ["outcome"],
                registry=registry,
            )
            for outcome in ("applied", "refused"):
                self._reloads.labels(outcome)
            self._tenants = Gauge("streamway_tenants", "Tenants that have a row.", registry=registry)
        # Before reading: what changes meanwhile differs from it at the next look.
        self._seen = fingerprint(self._paths(()))
        self.tenancy = self._load(None)
        self._refused = ""
        self._looks_since_refusal = 0
        self._count()

    async def run(self) -> None:
        """Looks again and again until cancelled."""
        while True:
            await asyncio.sleep(self._shared.tenants_poll_s)
            await self.look()

    async def look(self) -> bool:
        """Looks once. True when something else counts now."""
        seen = fingerprint(self._paths(self.tenancy.files))
        if seen == self._seen:
            self._looks_since_refusal += 1
            if not self._refused or self._looks_since_refusal < _AGAIN_AFTER:
                return False
        self._seen, self._looks_since_refusal = seen, 0
        try:
            found = await in_thread(lambda: self._load(self.tenancy))
        except StartError as problem:
            self._refuse(str(problem))
            return False
        self._refused = ""
        if found == self.tenancy:
            return False
        self.tenancy = found
        self._count()
        if self._reloads is not None:
            self._reloads.labels("applied").inc()
        _log.info("tenants_reloaded", tenants=len(found.tenants), keys=len(found.keys))
        return True

    def _load(self, before: Tenancy | None) -> Tenancy:
        found = load_tenancy(self._shared)
        objection = self._objection(found)
        if objection:
            raise StartError(objection)
        if before is not None and before.has_credentials and not found.has_credentials:
            # A file that was emptied or removed by mistake must not let everybody in.
            raise StartError("no key is left, which would let everybody in; start anew where that is meant")
        if before is not None and found.has_credentials and not before.has_credentials and not self._shared.mesh_token:
            raise StartError("keys would lock the services out of one another; set STREAMWAY_MESH_TOKEN and start anew")
        return found

    def _refuse(self, problem: str) -> None:
        if problem == self._refused:
            return
        self._refused = problem
        if self._reloads is not None:
            self._reloads.labels("refused").inc()
        _log.error("tenants_not_reloaded", problem=problem)

    def _paths(self, more: Sequence[Path]) -> list[Path]:
        """The files that say what there is, whether they are there or not, and those they named."""
        named = (config_file(), self._shared.tenants_file, self._shared.api_keys_file)
        return list(dict.fromkeys([path for path in named if path is not None] + list(more)))

    def _count(self) -> None:
        if self._tenants is not None:
            self._tenants.set(len(self.tenancy.tenants))
