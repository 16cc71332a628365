"""Moves the worker's limit."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from services.inference_adapter.core.concurrency import Concurrency, Surroundings
from services.inference_adapter.io.worker import Worker
from services.inference_adapter.metrics import AdapterMetrics
from streamway.runtime.cpu import CpuMeter

_log = structlog.get_logger("adapter")


class Limiting:
    """Asks the rule, and has the window made as large as it says.

    `kv_used` is the engine's (0 … 1, None: unknown), `mesh_generations` what lives at all routers (0: unknown),
    `memory_pressed` whether the memory is nearly full.
    """

    def __init__(
        self,
        concurrency: Concurrency,
        worker: Worker,
        cpu: CpuMeter,
        metrics: AdapterMetrics,
        *,
        kv_used: Callable[[], float | None],
        mesh_generations: Callable[[], int],
        memory_pressed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._concurrency = concurrency
        self._worker = worker
        self._cpu = cpu
        self._metrics = metrics
        self._kv_used = kv_used
        self._mesh_generations = mesh_generations
        self._memory_pressed = memory_pressed

    def tick(self, now: float) -> None:
        """Time has passed, in monotonic seconds."""
        concurrency, before = self._concurrency, self._concurrency.limit
        if not concurrency.tick(self._worker.window.running, now):
            return
        around = Surroundings(self._cpu.share(), self._kv_used(), self._mesh_generations(), self._memory_pressed())
        why = concurrency.look(around, now)
        if why is not None:
            self._metrics.limit_moves.labels("up" if concurrency.limit > before else "down", why).inc()
            _log.info("limit_moved", before=before, limit=concurrency.limit, why=why)
            self._worker.resize(concurrency.limit)
