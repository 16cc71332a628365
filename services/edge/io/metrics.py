"""The edge's metrics. What is counted for each token, write or resume is a plain number, read when somebody scrapes."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.edge.core.connection_life import Why
from streamway.v1 import common_pb2

_DURATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_TTFT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30, 60, 180)


class EdgeMetrics(Collector):
    """Counters of one edge process. Surfaces: websocket, openai_stream, openai, sse, long_poll, background, responses,
    responses_stream."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge(
            "streamway_edge_connections", "Client connections and requests open now.", ["surface"], registry=registry
        )
        self.generations = Counter(
            "streamway_edge_generations",
            "Generations that ended, by how: finished, cancelled, left, or the reason of the error.",
            ["surface", "outcome"],
            registry=registry,
        )
        self.ttft = Histogram(
            "streamway_edge_ttft_seconds",
            "From the request to its first token.",
            ["surface"],
            buckets=_TTFT_BUCKETS,
            registry=registry,
        )
        self.duration = Histogram(
            "streamway_edge_duration_seconds",
            "From the request to its end, however it ended.",
            ["surface"],
            buckets=_DURATION_BUCKETS,
            registry=registry,
        )
        self.drained = Counter(
            "streamway_edge_drained_connections",
            "WebSockets that were told to connect again while the process goes on: requests, growth, credentials, pressure.",
            ["why"],
            registry=registry,
        )
        for why in Why:
            self.drained.labels(why)
        self.pressure_level = Gauge(
            "streamway_edge_pressure",
            "1 while this level of pressure holds: requests, latency.",
            ["level"],
            registry=registry,
        )
        self.pressure_part = Gauge(
            "streamway_edge_pressure_part",
            "Parts of the score, 0 to 1: requests, latency, memory.",
            ["part"],
            registry=registry,
        )
        self.pressure_score = Gauge(
            "streamway_edge_pressure_score", "0 to 1; idle connections go over 0.85.", registry=registry
        )
        self.bulk_waiting = Gauge(
            "streamway_edge_bulk_waiting", "Bulk generations that wait for the pressure to be over.", registry=registry
        )
        self.stream_buffer = Gauge(
            "streamway_edge_stream_buffer_bytes", "Bytes that may wait for one slow client now.", registry=registry
        )
        self.output_share = Gauge(
            "streamway_edge_output_share_ratio",
            "Part of the stream memory that is for output buffers.",
            registry=registry,
        )
        self.request_bytes = Gauge(
            "streamway_edge_request_bytes", "Bytes of requests that no router has yet.", registry=registry
        )
        self.responses = Counter("streamway_edge_responses", "HTTP responses by status.", ["status"], registry=registry)
        self.live: Tally[str] = Tally()
        self.tokens: Tally[str] = Tally()
        self.bytes: Tally[str] = Tally()
        self.resumes: Tally[str] = Tally()
        self.pauses = 0
        self.tenant_pauses = 0
        self.slow_consumers = 0
        self.abnormal_closes = 0
        self.router_failures = 0
        self.refused_handshakes = 0
        self.evicted_upstream = 0
        registry.register(self)

    def resumed(self, resumed: common_pb2.Resumed) -> None:
        """A reader began somewhere in a generation, and was told this."""
        found = "recovered" if resumed.recovered else "not_recovered"
        self.resumes["behind" if resumed.behind else found] += 1

    def collect(self) -> Iterator[Metric]:
        """What is counted as plain numbers."""
        live = GaugeMetricFamily("streamway_edge_live_generations", "Generations open now.", labels=["surface"])
        for surface, number in self.live.items():
            live.add_metric([surface], number)
        yield live
        tokens = CounterMetricFamily("streamway_edge_tokens", "Token units passed to clients.", labels=["surface"])
        for surface, number in self.tokens.items():
            tokens.add_metric([surface], number)
        yield tokens
        sent = CounterMetricFamily("streamway_edge_sent_bytes", "Bytes written to clients.", labels=["surface"])
        for surface, number in self.bytes.items():
            sent.add_metric([surface], number)
        yield sent
        resumes = CounterMetricFamily(
            "streamway_edge_resumes",
            "Generations resumed from a cursor, by outcome: recovered, not_recovered, behind.",
            labels=["outcome"],
        )
        for outcome, number in self.resumes.items():
            resumes.add_metric([outcome], number)
        yield resumes
        yield CounterMetricFamily(
            "streamway_edge_pauses",
            "Times a generation was paused since its client read too slowly, to be served from its channel later.",
            self.pauses,
        )
        yield CounterMetricFamily(
            "streamway_edge_tenant_pauses",
            "Times a client was paused since those of its tenant had more waiting than its buffered_bytes.",
            self.tenant_pauses,
        )
        yield CounterMetricFamily(
            "streamway_edge_slow_consumers", "Connections closed since the client read too slowly.", self.slow_consumers
        )
        yield CounterMetricFamily(
            "streamway_edge_abnormal_closes",
            "Connections that a client cut or half-closed with generations open.",
            self.abnormal_closes,
        )
        yield CounterMetricFamily(
            "streamway_edge_refused_websockets",
            "New WebSockets that were told to use server-sent events or long polls.",
            self.refused_handshakes,
        )
        yield CounterMetricFamily(
            "streamway_edge_evicted_upstream", "Idle streams to workers closed under pressure.", self.evicted_upstream
        )
        yield CounterMetricFamily(
            "streamway_edge_router_failures",
            "Times a router's stream broke or a router did not answer.",
            self.router_failures,
        )
