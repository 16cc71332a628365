"""A decision's reason is told in a metric, in a span and in `accepted`: a real router with an in-memory exporter."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest
from redis.asyncio import Redis

from streamway.lanes import request_of
from streamway.telemetry.context import begin
from tests.support.router_mesh import ask, mesh
from tests.support.valkey_server import ValkeyServer


async def test_the_reason_of_a_decision_is_in_a_metric_a_span_and_the_accepted_event(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sender = begin(sampled=True)
    async with mesh(valkey, valkey_server.url, tracing=provider) as made:
        stream = made.connect()
        wanted = ask(session="s", traceparent=sender.traceparent)
        accepted = (await stream.first(await stream.open(wanted))).accepted
        assert (accepted.route, accepted.reason) == ("home", "first")
        (task,) = await made.workers[0].take()
        refused = ask(model="nobody-serves-it", traceparent=sender.traceparent)
        assert (await stream.first(await stream.open(refused))).HasField("error")
        shown = generate_latest(made.app._metrics_registry).decode()
        await stream.close()
    assert 'streamway_router_decisions_total{branch="home",reason="first"} 1.0' in shown
    assert 'streamway_router_admissions_total{outcome="model_not_found"} 1.0' in shown
    placed, failed = exporter.get_finished_spans()
    assert placed.attributes is not None
    assert failed.attributes is not None
    assert placed.attributes["streamway.route"] == "home"
    assert placed.attributes["streamway.reason"] == "first"
    assert placed.attributes["streamway.breaker"] == "closed"
    assert placed.attributes["streamway.worker"] == "w0"
    assert failed.attributes["error.type"] == "model_not_found"
    # One trace from the sender over this span to the worker.
    assert f"{placed.context.trace_id:032x}" == sender.trace_id
    found = (await request_of(valkey, [task.copy.generation]))[0]
    assert found is not None
    assert found[0].traceparent == f"00-{sender.trace_id}-{placed.context.span_id:016x}-01"
