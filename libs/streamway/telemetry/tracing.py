"""OpenTelemetry: set up only where `traces` is on; the grpc instrumentation wraps calls that are one request each.

Imported only then too: they cost each process a quarter of a second at its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grpc.aio import ServerInterceptor

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

# Streams that live as long as their peers: a span over days says nothing, so generations on them get spans of their own.
_LONG_LIVED: Final = ("Connect", "Attach", "Exchange", "Check", "Watch", "ServerReflectionInfo")


def configure(service: str, enabled: bool) -> TracerProvider | None:
    """Installs the tracer provider, exporting by OTLP. Returns None when traces are off, at no cost to any request."""
    if not enabled:
        return None
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": f"streamway-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def server_interceptors(provider: TracerProvider | None) -> list[ServerInterceptor]:
    """The grpc instrumentation for a server, or nothing when traces are off."""
    if provider is None:
        return []
    from opentelemetry.instrumentation.grpc import aio_server_interceptor
    from opentelemetry.instrumentation.grpc.filters import any_of, method_name, negate

    long_lived: Any = any_of(*(method_name(name) for name in _LONG_LIVED))
    return [aio_server_interceptor(tracer_provider=provider, filter_=negate(long_lived))]
