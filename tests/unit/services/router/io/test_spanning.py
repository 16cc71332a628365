"""What a span says of a decision: an in-memory exporter, and an opener that decides what it is told to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.router.core import events
from services.router.core.breaker import State
from services.router.core.decision import Branch, Decision, Reason
from services.router.interfaces import Ask, Opened
from services.router.io.spanning import Spanning
from streamway.errors import QueueFull, StreamwayError
from streamway.telemetry.context import begin
from streamway.telemetry.hops import Hops
from streamway.telemetry.tracing import Tracer
from streamway.v1 import common_pb2

SAMPLED = begin(sampled=True)


class Deciding:
    """An opener that notes what was decided, then answers or raises."""

    def __init__(self, decide: Callable[[Ask], Opened]) -> None:
        self._decide = decide
        self.span = self.traceparent = ""

    async def open(self, ask: Ask) -> Opened:
        self.span = ask.here.span_id if ask.here is not None else ""
        self.traceparent = ask.request.traceparent
        return self._decide(ask)


async def _spans(
    decide: Callable[[Ask], Opened], traceparent: str = SAMPLED.traceparent
) -> tuple[Deciding, list[ReadableSpan]]:
    exporter, provider, inner = InMemorySpanExporter(), TracerProvider(), Deciding(decide)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    request = common_pb2.GenerationRequest(generation="g", model="m", traceparent=traceparent)
    request.messages.add(role="user", content="a secret")
    with contextlib.suppress(StreamwayError, ZeroDivisionError):
        await Spanning(inner, Hops("router", tracer=Tracer(provider, "router"))).open(Ask(request, cache="miss"))
    return inner, list(exporter.get_finished_spans())


def _placed(ask: Ask) -> Opened:
    ask.decision = Decision("w1", Branch.SPILL, Reason.KEPT, "w0", 10)
    ask.breaker = State.HALF_OPEN
    told = events.accepted(ask.request, route=Branch.SPILL, reason=Reason.KEPT, cache=ask.cache, worker="w1")
    return Opened([told], None)


async def test_a_span_tells_route_reason_breaker_and_goes_on_with_the_senders_trace() -> None:
    inner, (span,) = await _spans(_placed)
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": "g",
        "gen_ai.response.model": "m",
        "gen_ai.conversation.id": "",
        "streamway.outcome": "answered",
        "streamway.route": "spill",
        "streamway.reason": "kept",
        "streamway.breaker": "half_open",
        "streamway.cache": "miss",
        "streamway.durability": "off",
        "streamway.worker": "w1",
    }
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == SAMPLED.span_id
    assert f"{span.context.trace_id:032x}" == SAMPLED.trace_id
    assert inner.span == f"{span.context.span_id:016x}"
    assert span.status.is_unset


async def test_a_refusal_is_told_by_its_reason_beside_what_was_decided() -> None:
    def refuse(ask: Ask) -> Opened:
        ask.decision = Decision.nobody(any_open=True)
        raise QueueFull("m", 1.0)

    _, (span,) = await _spans(refuse)
    assert span.attributes is not None
    assert span.attributes["error.type"] == "queue_full"
    assert (span.attributes["streamway.route"], span.attributes["streamway.reason"]) == ("none_eligible", "all_full")
    assert not span.status.is_ok
    assert not span.status.is_unset


async def test_a_fault_is_told_without_its_text() -> None:
    def fail(ask: Ask) -> Opened:
        raise ZeroDivisionError(ask.request.messages[0].content)

    _, (span,) = await _spans(fail)
    assert span.attributes is not None
    assert span.attributes["error.type"] == "internal"
    assert "a secret" not in span.to_json()


async def test_what_the_sender_does_not_want_recorded_is_not() -> None:
    inner, spans = await _spans(_placed, begin(sampled=False).traceparent)
    assert spans == []
    # Whoever comes next is told the same: the trace goes on, unrecorded.
    assert inner.traceparent.endswith(f"-{inner.span}-00")


@pytest.mark.parametrize("route", ["cache", "joined"])
async def test_a_route_that_is_no_decision_about_a_worker_has_no_reason(route: str) -> None:
    _, (span,) = await _spans(lambda ask: Opened([events.accepted(ask.request, route=route, cache="exact")], None))
    assert span.attributes is not None
    assert span.attributes["streamway.route"] == route
    assert "streamway.reason" not in span.attributes
    assert "streamway.worker" not in span.attributes
