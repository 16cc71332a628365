"""What an OpenTelemetry collector is to the mesh: it takes spans over OTLP. Here it keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True, slots=True)
class Span:
    """One exported span; ids as hex digits, times in nanoseconds."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    facts: dict[str, Any]
    events: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    failed: bool
    began: int
    ended: int


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Use it as `with Receiver() as receiver`. It works in a thread of its own: meshes start while nothing else runs."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._server = grpc.server(ThreadPoolExecutor(1))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()

    @property
    def environment(self) -> dict[str, str]:
        """For a mesh that is to send its spans here, soon."""
        return {
            "STREAMWAY_TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._port}",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }

    def Export(self, request: Any, context: Any) -> Any:
        """The collector's one call."""
        self.spans += _spans_of(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def of(self, generation: str) -> list[Span]:
        """Of one generation, in the order of their beginnings."""
        found = [span for span in self.spans if span.facts.get("gen_ai.response.id") == generation]
        return sorted(found, key=lambda span: span.began)

    async def until(self, condition: Callable[[], Any], within_s: float = 30.0) -> Any:
        """Waits until what `condition` gives is true, and gives it."""
        async with asyncio.timeout(within_s):
            while not (found := condition()):
                await asyncio.sleep(0.05)
        return found


def _spans_of(request: Any) -> Iterator[Span]:
    for of_resource in request.resource_spans:
        service = next(a.value.string_value for a in of_resource.resource.attributes if a.key == "service.name")
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Span(
                    service.removeprefix("streamway-"),
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    {a.key: _value(a.value) for a in span.attributes},
                    tuple(event.name for event in span.events),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    span.status.code == 2,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
