"""OpenTelemetry: set up only where `traces` is on. The grpc instrumentation wraps calls that are one request each; what is
decided on a stream of many requests has spans of its own.

Imported only then too: they cost each process a quarter of a second at its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from grpc.aio import ServerInterceptor

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

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


class Recorded:
    """A span that is being recorded. `id` is 16 hex digits; empty when the sender said that its trace is not to be sampled."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.id = f"{span.get_span_context().span_id:016x}" if span.is_recording() else ""

    def tell(self, attributes: Mapping[str, str]) -> None:
        """Values must be few: words of enums, names of what the mesh is made of."""
        self._span.set_attributes(attributes)

    def fail(self, reason: str) -> None:
        """It came to nothing, and why: a word of the catalogue of errors, never an exception's text."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR))


class Tracer:
    """Begins the spans of one service."""

    def __init__(self, provider: TracerProvider, service: str) -> None:
        self._tracer = provider.get_tracer(f"streamway.{service}")

    @contextmanager
    def span(self, name: str, traceparent: str) -> Iterator[Recorded]:
        """A span inside the current one; without one it goes on with the sender's trace."""
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = None
        if not trace.get_current_span().get_span_context().is_valid:
            context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        # Exceptions are told by whoever opened the span: their texts may hold what must not leave.
        with self._tracer.start_as_current_span(
            name, context, record_exception=False, set_status_on_exception=False
        ) as span:
            yield Recorded(span)
