"""Puts together what a worker does for its sessions beside answering them."""

from __future__ import annotations

from collections.abc import Callable

from services.inference_adapter.core.warming import Load, Warming
from services.inference_adapter.interfaces import Backend
from services.inference_adapter.io.prompts import Prompts
from services.inference_adapter.io.snapshots import Snapshots
from services.inference_adapter.io.turns import SessionTurns
from services.inference_adapter.io.warmer import Warmer
from services.inference_adapter.metrics import AdapterMetrics
from services.inference_adapter.settings import AdapterSettings
from streamway.runtime.clock import Clock
from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link


def make_turns(
    settings: AdapterSettings,
    valkey: Valkey,
    link: Link,
    backend: Backend,
    clock: Clock,
    metrics: AdapterMetrics,
    load: Callable[[], Load | None],
) -> SessionTurns:
    """`load` is asked only after everything has been put together; None while nothing may be warmed."""
    worker = settings.worker
    snapshots = Snapshots(valkey, link, clock, worker, ttl_s=settings.session_s, most_bytes=settings.session_bytes)
    prompts = Prompts(valkey, clock)
    if not settings.warm:
        return SessionTurns(snapshots, prompts, None)
    warming = Warming(share=settings.warm_share, most_load=settings.warm_load, lives_s=settings.session_s)
    warmer = Warmer(
        *(valkey, backend, warming, snapshots, prompts, clock, metrics, load),
        worker=worker,
        most_prompts=settings.warm_prompts,
    )
    return SessionTurns(snapshots, prompts, warmer)
