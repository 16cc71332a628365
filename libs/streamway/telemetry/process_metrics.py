"""What every process of the mesh measures of itself, under the same names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamway.telemetry.hops import Hops

_LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SAMPLE_S: Final = 0.25


class ProcessMetrics(Collector):
    """How late the event loop is, and what is in flight here by its age: a stream that hangs is seen among the old ones."""

    def __init__(self, registry: CollectorRegistry, hops: Hops) -> None:
        self._hops = hops
        self._lag = Histogram(
            "streamway_loop_lag_seconds",
            "How late the event loop runs a timer, sampled four times a second.",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        registry.register(self)
        # Memory, open files, CPU: process_….
        ProcessCollector(registry=registry)

    def collect(self) -> Iterator[Metric]:
        """At each scrape."""
        ages = GaugeMetricFamily(
            "streamway_inflight_generations",
            "Generations in flight in this process, by age: each is counted under the first bound it is below.",
            labels=["age"],
        )
        for label, number in self._hops.ages().items():
            ages.add_metric([label], number)
        yield ages
        yield GaugeMetricFamily(
            "streamway_recent_hops", "Rows in the table that `streamway trace` reads.", value=len(self._hops)
        )

    async def run(self) -> None:
        """Measures until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _SAMPLE_S
            await asyncio.sleep(_SAMPLE_S)
            self._lag.observe(max(0.0, loop.time() - due))
