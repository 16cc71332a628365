"""Reads the names of models again when streamway.yaml changes. What is good replaces the whole; what is not changes nothing."""

from __future__ import annotations

import asyncio

import structlog
from prometheus_client import CollectorRegistry, Counter

from streamway.config import SharedSettings
from streamway.config.base import config_file
from streamway.config.fingerprint import Fingerprint, fingerprint
from streamway.models.loading import load_models
from streamway.runtime.start import StartError
from streamway.runtime.threads import in_thread

_log = structlog.get_logger("models")


class ModelsWatch:
    """`routing` is what counts now. It is read once here; `run` looks for changes. Raises StartError."""

    def __init__(self, shared: SharedSettings, registry: CollectorRegistry) -> None:
        self._poll_s = shared.tenants_poll_s
        self._reloads = Counter(
            "streamway_models_reloads",
            "Times that changed names of models were taken (applied) or refused, the last good ones kept (refused).",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("applied", "refused"):
            self._reloads.labels(outcome)
        # Before reading: what changes meanwhile differs from it at the next look.
        self._seen = _print()
        self.routing = load_models()

    async def run(self) -> None:
        """Looks again and again until cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            await self.look()

    async def look(self) -> bool:
        """Looks once. True when something else counts now."""
        seen = _print()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            found = await in_thread(load_models)
        except StartError as problem:
            self._reloads.labels("refused").inc()
            _log.error("models_not_reloaded", problem=str(problem))
            return False
        if found == self.routing:
            return False
        self.routing = found
        self._reloads.labels("applied").inc()
        _log.info("models_reloaded", names=len(found.names))
        return True


def _print() -> Fingerprint:
    path = config_file()
    return fingerprint([path] if path is not None else [])
