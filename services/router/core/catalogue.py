"""The models that workers serve now."""

from __future__ import annotations

from collections.abc import Iterable

from services.router.core.worker import Worker
from streamway.v1 import router_pb2


def served_models(workers: Iterable[Worker]) -> list[router_pb2.Model]:
    """One row per model of the ready workers, sorted by name. A context is told only where every worker tells one."""
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
    return [rows[name] for name in sorted(rows)]
