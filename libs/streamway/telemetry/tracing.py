"""OpenTelemetry: set up only where `traces` is on. The grpc instrumentation wraps calls that are one request each; a generation
has one span for each hop, which `hops.py` begins, and whose ids are those of the request context.

Imported only then too: they cost each process a quarter of a second at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from grpc.aio import ServerInterceptor

from streamway.telemetry.closing import ClosingInterceptor
from streamway.telemetry.context import RequestContext, begin
from streamway.telemetry.facts import Facts

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Span

# Streams that live as long as their peers: a span over days says nothing, so generations on them get spans of their own.
_LONG_LIVED: Final = ("Connect", "Attach", "Exchange", "Check", "Watch", "ServerReflectionInfo")

# A batch that no collector takes for so long, tries included, is dropped: a process that ends would wait for it.
_EXPORT_S: Final = 2.0

Kind = Literal["server", "client", "producer", "consumer", "internal"]


def configure(service: str, enabled: bool, ratio: float = 1.0) -> TracerProvider | None:
    """Installs the tracer provider, exporting by OTLP. Returns None when traces are off, at no cost to any request.

    `ratio` is the share of the traces that begin in this mesh, 0 … 1, to be recorded; a sender's decision holds.
    """
    if not enabled:
        return None
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        resource=Resource.create({"service.name": f"streamway-{service}", "service.namespace": "streamway"}),
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=_EXPORT_S)))
    trace.set_tracer_provider(provider)
    return provider


def server_interceptors(provider: TracerProvider | None) -> list[ServerInterceptor]:
    """The grpc instrumentation for a server, or nothing when traces are off."""
    if provider is None:
        return []
    from opentelemetry.instrumentation.grpc import aio_server_interceptor
    from opentelemetry.instrumentation.grpc.filters import any_of, method_name, negate

    long_lived: Any = any_of(*(method_name(name) for name in _LONG_LIVED))
    traced = aio_server_interceptor(tracer_provider=provider, filter_=negate(long_lived))
    return [ClosingInterceptor(_LONG_LIVED), traced]


class Recorded:
    """A span that is being recorded."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def tell(self, facts: Facts) -> None:
        """Values must be few: words of enums, names of what the mesh is made of, numbers, ids."""
        self._span.set_attributes(facts)

    def mark(self, name: str, facts: Facts | None = None) -> None:
        """An event at this moment."""
        self._span.add_event(name, facts)

    def link(self, traceparent: str) -> None:
        """Something that this one goes on with. What is no W3C trace context is left out."""
        for link in _links((traceparent,)):
            self._span.add_link(link.context, link.attributes)

    def fail(self, reason: str) -> None:
        """It came to nothing, and why: a word of the catalogue of errors, never an exception's text."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        """Nothing more is told of it."""
        self._span.end()


class Tracer:
    """Begins the spans of one service, under the ids that a request context has already."""

    def __init__(self, provider: TracerProvider, service: str) -> None:
        self._ids = provider.id_generator = _chosen(provider.id_generator)
        self._tracer = provider.get_tracer(f"streamway.{service}")

    def span(
        self, name: str, context: RequestContext, kind: Kind, facts: Facts, links: Sequence[str] = ()
    ) -> Recorded | None:
        """The span of `context`, inside its parent; None when its trace is not to be recorded."""
        if not context.sampled:
            return None
        from opentelemetry.trace import SpanKind

        self._ids.next_trace, self._ids.next_span = int(context.trace_id, 16), int(context.span_id, 16)
        span = self._tracer.start_span(
            name,
            _remote(context.trace_id, context.parent),
            kind=SpanKind[kind.upper()],
            attributes=facts,
            links=list(_links(links)),
        )
        return Recorded(span) if span.is_recording() else None


def calling(traceparent: str) -> str:
    """The trace context of the gRPC call that is being served, where the instrumentation has a span for it; else what its sender
    said."""
    from opentelemetry import trace

    here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        return traceparent
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{'01' if here.trace_flags.sampled else '00'}"


def _chosen(otherwise: Any) -> Any:
    """An id generator that gives out the ids it was told, each once, and otherwise random ones."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Chosen(RandomIdGenerator):
        next_trace = 0
        next_span = 0

        def generate_trace_id(self) -> int:
            chosen, self.next_trace = self.next_trace, 0
            return chosen or int(otherwise.generate_trace_id())

        def generate_span_id(self) -> int:
            chosen, self.next_span = self.next_span, 0
            return chosen or int(otherwise.generate_span_id())

    return Chosen() if not hasattr(otherwise, "next_trace") else otherwise


def _remote(trace_id: str, span_id: str) -> Any:
    """An OpenTelemetry context in which a span of another process is the current one; without a span an empty one."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if not span_id:
        return Context()
    remote = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
    return set_span_in_context(NonRecordingSpan(remote), Context())


def _links(traceparents: Sequence[str]) -> list[Link]:
    from opentelemetry.trace import Link, SpanContext, TraceFlags

    found = []
    for traceparent in traceparents:
        linked = begin(traceparent)
        if linked.parent:
            where = SpanContext(
                int(linked.trace_id, 16), int(linked.parent, 16), is_remote=True, trace_flags=TraceFlags(linked.sampled)
            )
            found.append(Link(where))
    return found
