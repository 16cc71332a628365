"""The models that workers serve now, and the names that stand for them."""

from __future__ import annotations

from collections.abc import Iterable

from services.router.core.worker import Worker
from streamway.models import ModelRouting
from streamway.v1 import router_pb2


def served_models(workers: Iterable[Worker], routing: ModelRouting | None = None) -> list[router_pb2.Model]:
    """One row per model of the ready workers, and per alias or choice that leads to some, sorted by name.

    A context is told only where every worker tells one. A name counts the workers of all the models it may mean first.
    """
    rows: dict[str, router_pb2.Model] = {}
    contexts: dict[str, list[int]] = {}
    for worker in workers:
        if worker.state != "ready":
            continue
        for served in worker.models:
            row = rows.setdefault(served.name, router_pb2.Model(name=served.name))
            row.workers += 1
            row.slots += worker.slots
            contexts.setdefault(served.name, []).append(served.context_tokens)
    for name, row in rows.items():
        row.context_tokens = min(contexts[name])
    if routing is not None:
        rows |= _named(rows, routing)
    return [rows[name] for name in sorted(rows)]


def _named(rows: dict[str, router_pb2.Model], routing: ModelRouting) -> dict[str, router_pb2.Model]:
    named = {}
    for name in routing.names:
        found = [rows[model] for model in routing.models(name) if model in rows]
        if found:
            named[name] = router_pb2.Model(
                name=name,
                workers=sum(row.workers for row in found),
                slots=sum(row.slots for row in found),
                context_tokens=min(row.context_tokens for row in found),
                stands_for=[row.name for row in found],
            )
    return named
