"""What a service records of itself, put together the same way in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc.aio import ServerInterceptor
from prometheus_client import CollectorRegistry

from streamway.config.shared import SharedSettings
from streamway.telemetry import tracing
from streamway.telemetry.hops import Hops
from streamway.telemetry.process_metrics import ProcessMetrics

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class Telemetry:
    """Spans, recent hops and the metrics of the process itself. `process` is its name in the mesh.

    `provider` is for tests; without it there is one where the settings say so.
    """

    def __init__(
        self,
        service: str,
        process: str,
        shared: SharedSettings,
        registry: CollectorRegistry,
        *,
        provider: TracerProvider | None = None,
    ) -> None:
        self._provider = provider or tracing.configure(service, shared.traces, shared.traces_ratio)
        tracer = tracing.Tracer(self._provider, service) if self._provider is not None else None
        self.hops = Hops(service, process, tracer, ratio=shared.traces_ratio, most=shared.recent_hops)
        self._process = ProcessMetrics(registry, self.hops)

    def interceptors(self) -> list[ServerInterceptor]:
        """For a gRPC server."""
        return tracing.server_interceptors(self._provider)

    async def run(self) -> None:
        """Measures the process until cancelled."""
        await self._process.run()

    def close(self) -> None:
        """Ends what is live and sends what has not been exported."""
        self.hops.close()
        if self._provider is not None:
            self._provider.shutdown()
