"""A worker as its lease, or its own answer, describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of a worker. `context_tokens` 0: unknown."""

    name: str
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker at one moment.

    `load_tokens` are its estimated tokens in flight at `reported_ms` (Unix ms, the worker's clock). `tasks` are the entries
    of its lanes at `polled_ms` (Unix ms, ours): unread, waiting and running ones of every router.
    """

    id: str
    address: str
    models: tuple[ServedModel, ...]
    slots: int
    load_tokens: int = 0
    draining: bool = False
    healthy: bool = True
    reported_ms: float = 0.0
    tasks: int = 0
    polled_ms: float = 0.0

    @property
    def state(self) -> str:
        """ "ready", "draining" or "unhealthy"."""
        if not self.healthy:
            return "unhealthy"
        return "draining" if self.draining else "ready"

    def serves(self, model: str) -> bool:
        """It has this model."""
        return any(served.name == model for served in self.models)

    @classmethod
    def parse(cls, id_: str, fields: Mapping[str, str]) -> Worker:
        """Reads the fields of a worker lease. Raises ValueError or KeyError when they are not one."""
        models = json.loads(fields["models"])
        return cls(
            id=id_,
            address=fields["address"],
            models=tuple(ServedModel(str(row["name"]), int(row.get("context_tokens") or 0)) for row in models),
            slots=max(1, int(fields["slots"])),
            load_tokens=max(0, int(float(fields.get("load_tokens") or 0))),
            draining=fields.get("draining") == "1",
            healthy=fields.get("healthy", "1") == "1",
            reported_ms=float(fields.get("reported_ms") or 0),
        )
