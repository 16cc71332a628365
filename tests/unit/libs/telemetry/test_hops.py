"""The table of what a process did of late, and the spans that go with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from prometheus_client import CollectorRegistry, generate_latest

from streamway.telemetry.context import begin, recorded
from streamway.telemetry.engine_calls import span_of_call, trace_of_call
from streamway.telemetry.hops import Hops
from streamway.telemetry.process_metrics import ProcessMetrics
from streamway.telemetry.tracing import Tracer


class Exporting:
    """A tracer whose spans can be read."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = Tracer(provider, "edge")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_span_has_the_ids_of_its_context_and_tells_what_was_marked() -> None:
    exporting = Exporting()
    hops = Hops("edge", tracer=exporting.tracer)
    context, other = hops.context(), begin(sampled=1.0)
    hop = hops.begin("chat m", context, "g", kind="server", facts={"streamway.surface": "sse"})
    inner = hops.begin("inner", hops.context(context.traceparent), "g", links=[other.traceparent, "nonsense"])
    hop.mark("first_token")
    assert hop.exemplar == {"trace_id": context.trace_id}
    inner.end("queue_full")
    hop.end("finished")
    hop.end("cancelled")
    hop.mark("too late")
    failed, span = exporting.spans
    assert span.context.trace_id == failed.context.trace_id == int(context.trace_id, 16)
    assert span.context.span_id == int(context.span_id, 16)
    assert span.parent is None
    assert failed.parent is not None
    assert failed.parent.span_id == span.context.span_id
    assert [event.name for event in span.events] == ["first_token", "terminal"]
    assert span.attributes is not None
    assert span.attributes["streamway.outcome"] == "finished"
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "queue_full"
    assert [f"{link.context.span_id:016x}" for link in failed.links] == [other.span_id]
    assert hop.exemplar is None


def test_what_is_not_sampled_has_a_row_and_no_span() -> None:
    exporting = Exporting()
    hops = Hops("edge", tracer=exporting.tracer)
    hop = hops.begin("chat m", hops.context(begin(sampled=0.0).traceparent), "g")
    hop.mark("first_token")
    hop.end("finished")
    assert exporting.spans == []
    assert hop.exemplar is None
    assert [row.outcome for row in hops.of("g")] == ["finished"]


def test_the_table_keeps_the_newest_and_forgets_whole_generations() -> None:
    hops = Hops("edge", most=3)
    for number in range(5):
        hops.begin("one", hops.context(), f"g{number}").end("finished")
    hops.begin("two", hops.context(), "g4")
    assert len(hops) == 3
    assert hops.of("g0") == hops.of("g2") == []
    assert [hop.name for hop in hops.of("g4")] == ["one", "two"]
    assert [hop.generation for hop in hops.newest(2)] == ["g4", "g4"]
    assert len(Hops("edge", most=0).of("g")) == 0


def test_what_a_hop_is_told_often_is_kept_once_for_each_name() -> None:
    hop = Hops("edge").begin("one", begin(), "g", facts={"first": 1, "number": -1})
    for number in range(1000):
        hop.tell({"number": number})
    assert hop.row()["facts"] == {"first": 1, "number": 999}
    assert len(hop._told) < 40
    hop.end("finished")
    hop.tell({"number": 0})
    assert hop.facts["number"] == 999


def test_in_flight_by_age_counts_what_is_counted_and_has_not_ended() -> None:
    time = Time()
    hops, registry = Hops("edge", unix=time), CollectorRegistry()
    ProcessMetrics(registry, hops)
    old = hops.begin("old", hops.context(), "a", counted=True)
    hops.begin("no generation", hops.context(), "a")
    time.now += 59
    hops.begin("new", hops.context(), "b", counted=True)
    shown = generate_latest(registry).decode()
    assert 'streamway_inflight_generations{age="1s"} 1.0' in shown
    assert 'streamway_inflight_generations{age="1m"} 1.0' in shown
    old.end("finished")
    assert sum(hops.ages().values()) == 1
    hops.close()
    assert sum(hops.ages().values()) == 0
    assert hops.of("b")[0].outcome == "stopped"


@given(st.floats(0, 1))
def test_who_begins_a_trace_decides_as_opentelemetrys_sampler_does(ratio: float) -> None:
    context = begin(sampled=ratio)
    decision = TraceIdRatioBased(ratio).should_sample(None, int(context.trace_id, 16), "")
    assert context.sampled == (decision.decision is Decision.RECORD_AND_SAMPLE)
    assert recorded(context.traceparent) == context.sampled


@pytest.mark.parametrize("sampled", [0.0, 1.0])
def test_a_senders_decision_holds(sampled: float) -> None:
    sender = begin(sampled=sampled)
    here = begin(sender.traceparent, sampled=1.0 - sampled)
    assert here.sampled == sender.sampled
    assert (here.trace_id, here.parent, here.sender) == (sender.trace_id, sender.span_id, sender.traceparent)
    assert begin(sampled=1.0).sender == ""


def test_every_worker_knows_what_an_engine_call_is_called() -> None:
    context = begin(sampled=1.0)
    assert trace_of_call(context, "g", 7) == f"00-{context.trace_id}-{span_of_call('g', 7)}-01"
    assert span_of_call("g", 7) != span_of_call("g", 8)
    assert len(span_of_call("g", 7)) == 16
