"""A worker as its lease, or its own answer, describes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.router.core.queues import NO_TASKS, Lanes
from streamway.models.abilities import Ability, of_words
from streamway.valkey.keys import CLASSES

# What a worker says of itself is believed up to these: one that lies must not make the arithmetic of all others senseless.
_MOST_SLOTS = 65_536
_MOST_TOKENS = 1_000_000_000
_MOST_PREFILL_MS = 1_000.0
_MOST_SLOT_MS = 3_600_000.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of a worker. `context_tokens` 0: unknown. `first_token_ms`: the P99 of the last minute; 0: unknown."""

    name: str
    context_tokens: int
    first_token_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker at one moment.

    `load_tokens` are its estimated tokens in flight at `reported_ms` (Unix ms, the worker's clock). `lanes` are the
    entries of its lanes at `polled_ms` (Unix ms, ours): unread, waiting and running ones of every router; `running` are those of
    them that run, by its report, `busy` all that run there, also what came past its lanes. `prefill_ms` is its time for a
    prompt token that is not in its KV, `slot_ms` how long a generation holds a slot, both of late; `preload_depth`
    how many tasks it takes beyond its slots; 0: not known. `kv_used`: 0 … 1, 0 also where its engine does not say; `kv_full`: it
    begins nothing more for now; `memory_pressed`: it takes no bulk work. `began_ms` (Unix ms, its clock) is when its present
    life began: the KV of an earlier one is gone. `limit` is how many generations it gives its engine at a time now; 0: as many as
    its slots. `cannot`: what its engine is known not to do.
    """

    id: str
    address: str
    models: tuple[ServedModel, ...]
    slots: int
    load_tokens: int = 0
    draining: bool = False
    healthy: bool = True
    reported_ms: float = 0.0
    lanes: Lanes = NO_TASKS
    running: Lanes = NO_TASKS
    busy: int = 0
    polled_ms: float = 0.0
    prefill_ms: float = 0.0
    slot_ms: float = 0.0
    preload_depth: int = 0
    kv_used: float = 0.0
    kv_full: bool = False
    memory_pressed: bool = False
    began_ms: float = 0.0
    limit: int = 0
    cannot: frozenset[Ability] = frozenset()

    @property
    def places(self) -> int:
        """Generations that run there side by side now: its weight, which moves. Where sessions are at home goes by `slots`."""
        return self.limit or self.slots

    @property
    def tasks(self) -> int:
        """Entries of all its lanes."""
        return sum(self.lanes)

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
            models=tuple(_served(row) for row in models),
            slots=int(_number(fields["slots"], 1, _MOST_SLOTS)),
            load_tokens=int(_number(fields.get("load_tokens"), 0, _MOST_TOKENS)),
            draining=fields.get("draining") == "1",
            healthy=fields.get("healthy", "1") == "1",
            reported_ms=_number(fields.get("reported_ms"), 0, math.inf),
            prefill_ms=_number(fields.get("prefill_ms"), 0, _MOST_PREFILL_MS),
            slot_ms=_number(fields.get("slot_ms"), 0, _MOST_SLOT_MS),
            running=running_of(json.loads(fields.get("running_lanes") or "{}")),
            busy=int(_number(fields.get("running"), 0, _MOST_SLOTS)),
            began_ms=_number(fields.get("began_ms"), 0, math.inf),
            preload_depth=int(_number(fields.get("preload_depth"), 0, _MOST_SLOTS)),
            kv_used=_number(fields.get("kv_used"), 0, 1),
            kv_full=fields.get("kv_full") == "1",
            memory_pressed=fields.get("memory_pressed") == "1",
            limit=int(_number(fields.get("limit"), 0, _MOST_SLOTS)),
            cannot=of_words(fields.get("cannot", "")),
        )


def running_of(said: Mapping[str, Any]) -> Lanes:
    """What runs of each lane, within what can be. Raises ValueError or TypeError for what is no such report."""
    gold, silver, bronze, bulk = (int(_number(dict(said).get(class_), 0, _MOST_SLOTS)) for class_ in CLASSES)
    return gold, silver, bronze, bulk


def _served(row: Mapping[str, Any]) -> ServedModel:
    first_token_ms = _number(row.get("first_token_ms"), 0, _MOST_SLOT_MS)
    return ServedModel(str(row["name"]), int(row.get("context_tokens") or 0), first_token_ms)


def _number(said: str | float | None, least: float, most: float) -> float:
    """What was said, within what can be; nothing counts as 0. Raises ValueError for what is no number."""
    number = float(said or 0)
    if math.isnan(number):
        raise ValueError("not a number")
    return min(most, max(least, number))
