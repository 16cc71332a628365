"""Prometheus metrics of the inference-adapter."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.inference_adapter.core.prompt_type import PromptType

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
# Those of OpenTelemetry's gen_ai.server.time_per_output_token.
_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
_UNITS = (1, 4, 16, 64, 256, 1024, 4096)


class AdapterMetrics:
    """Counters are moved once a flush or once a generation, never once a token."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # What that counter says: a metric is not read back.
        self.tokens_made = 0
        self._tokens = Counter("streamway_tokens", "Token units made by the engine.", registry=registry)
        self._events = Counter("streamway_events", "Events passed on; one may hold many tokens.", registry=registry)
        self.generations = Counter(
            "streamway_generations", "Generations that ended, by how.", ["state"], registry=registry
        )
        self.engine_errors = Counter(
            "streamway_engine_errors", "Engine calls that failed, by reason.", ["reason"], registry=registry
        )
        self.counted = Counter(
            "streamway_usage_tokens",
            "Tokens as engines counted them at the end of answers: prompt (cached ones among them), cached, completion.",
            ["kind"],
            registry=registry,
        )
        self.cost = Counter(
            "streamway_cost",
            "What answers have cost, in the operator's money: of models with a price, by the tenant's tier.",
            ["model", "tier"],
            registry=registry,
        )
        self.cancels = Counter(
            "streamway_cancels",
            "Generations ended before their time, by stage and reason.",
            ["stage", "reason"],
            registry=registry,
        )
        self.takeovers = Counter(
            "streamway_takeovers",
            "Answers that another worker had begun: how this one went on, or why it could not.",
            ["how"],
            registry=registry,
        )
        self.handovers = Counter(
            "streamway_handovers", "Engine calls left to another worker, by reason.", ["reason"], registry=registry
        )
        self.retries = Counter(
            "streamway_retries",
            "Engine calls that failed before their first token, by reason: made again elsewhere, or why not.",
            ["reason", "outcome"],
            registry=registry,
        )
        self.truncated = Counter(
            "streamway_truncated",
            "Answers that were cut before the engine had ended them.",
            ["reason"],
            registry=registry,
        )
        self.degraded = Counter(
            "streamway_tasks_degraded", "Tasks that waited too long here and went back to the pool.", registry=registry
        )
        self.limit_moves = Counter(
            "streamway_concurrency_moves",
            "Changes of the concurrency limit, by direction and reason: first_token, cpu, memory, room.",
            ["direction", "reason"],
            registry=registry,
        )
        self.not_durable = Counter(
            "streamway_not_durable", "Times that a generation went on without a silent store.", registry=registry
        )
        self.queue_wait = Histogram(
            "streamway_queue_wait_seconds", "From acceptance to the engine call.", buckets=_SECONDS, registry=registry
        )
        self.first_token = Histogram(
            "streamway_first_token_seconds", "From acceptance to the first token.", buckets=_SECONDS, registry=registry
        )
        self.token_time = Histogram(
            "streamway_token_seconds",
            "Mean time between tokens of an answer, behind its first.",
            buckets=_TOKEN_SECONDS,
            registry=registry,
        )
        self.inference = Histogram(
            "streamway_llm_inference_duration_seconds",
            "Duration of engine calls, by prompt type: long, tools, structured, multi_turn, single_turn.",
            ["prompt_type"],
            buckets=_SECONDS,
            registry=registry,
        )
        for kind in PromptType:
            self.inference.labels(kind)
        self._flush_units = Histogram(
            "streamway_flush_units",
            "Token units of one tick, all generations together.",
            buckets=_UNITS,
            registry=registry,
        )
        self._flush_generations = Histogram(
            "streamway_flush_generations", "Generations flushed in one tick.", buckets=_UNITS, registry=registry
        )
        self.warmed_prefixes = Counter(
            "streamway_warmed_prefixes", "Prefixes computed ahead of requests, by kind.", ["kind"], registry=registry
        )
        self.warmed_tokens = Counter(
            "streamway_warmed_tokens",
            "Prompt tokens computed for them; what was in KV does not count.",
            registry=registry,
        )
        self.warm_hits = Counter(
            "streamway_warm_hits",
            "Warmed prefixes that a real request found in KV, by kind; each counts once.",
            ["kind"],
            registry=registry,
        )
        self.warm_cut = Counter(
            "streamway_warm_cut",
            "Warming calls without a result, by reason: real work came, or the engine failed.",
            ["reason"],
            registry=registry,
        )
        self._registry = registry

    def flushed(self, generations: int, units: int) -> None:
        """One tick of the flusher."""
        self._flush_generations.observe(generations)
        self._flush_units.observe(units)

    def made(self, units: int, events: int) -> None:
        """Token units and events that were flushed."""
        if units:
            self.tokens_made += units
            self._tokens.inc(units)
        if events:
            self._events.inc(events)

    def gauge(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """A gauge that is read when somebody scrapes."""
        Gauge(name, documentation, registry=self._registry).set_function(value)
