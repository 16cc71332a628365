"""The router's metrics. Labels are bounded: branches, reasons, outcomes, states and tiers are enums; workers and models those of
the mesh, forgotten when they are gone."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class RouterMetrics:
    """All of them, on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decisions = Counter(
            "streamway_router_decisions",
            "Workers chosen, by where they stand to the session's home, and why.",
            ["branch", "reason"],
            registry=registry,
        )
        self.choices = Counter(
            "streamway_router_choices",
            "Looks at a choice between a large and a small model, by why one of them was preferred.",
            ["why"],
            registry=registry,
        )
        self.fallbacks = Counter(
            "streamway_router_model_fallbacks",
            "Generations that a model took for another one that could not.",
            registry=registry,
        )
        self.flights = Counter(
            "streamway_router_flights",
            "Requests that may share an engine call, by whether they began one (led) or joined one that was running (joined).",
            ["part"],
            registry=registry,
        )
        self.contexts = Gauge("streamway_router_contexts", "Kept contexts in this router's memory.", registry=registry)
        self.context_bytes = Gauge(
            "streamway_router_context_bytes",
            "Bytes of the kept contexts in this router's memory: raw, as they would be sent, and packed, as they are there.",
            ["form"],
            registry=registry,
        )
        self.context_reads = Counter(
            "streamway_router_context_reads",
            "Kept contexts put in front of a turn, by where they were: memory, store; none and damaged were refused.",
            ["source"],
            registry=registry,
        )
        self.context_turns = Counter(
            "streamway_router_context_turns",
            "Turns of kept contexts by what became of them: kept; dropped, since they failed or were refused; busy, since another"
            " one ran; lost, since the answer could not be had any more, and the context with it.",
            ["outcome"],
            registry=registry,
        )
        self.context_evictions = Counter(
            "streamway_router_context_evictions",
            "Kept contexts given up in memory, by why: budget, sessions, tenant, idle. They are in the store still.",
            ["reason"],
            registry=registry,
        )
        self.context_dictionaries = Counter(
            "streamway_router_context_dictionaries",
            "Looks whether a tenant's contexts would take less with a newer dictionary: made, no_better, too_few contexts here,"
            " looked_at by another router, too_many that are needed still.",
            ["outcome"],
            registry=registry,
        )
        self.admissions = Counter(
            "streamway_router_admissions",
            "Generations asked for, by outcome: admitted, or the reason of the refusal.",
            ["outcome"],
            registry=registry,
        )
        self.dispatch = Histogram(
            "streamway_router_dispatch_seconds",
            "Time until a task is in its lane.",
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0),
            registry=registry,
        )
        self.inline = Counter(
            "streamway_router_inline_tasks", "Tasks given to workers past the store.", registry=registry
        )
        self.moved = Counter(
            "streamway_router_tasks_moved",
            "Tasks of workers that are gone, by what became of them: requeued, dropped, given_up.",
            ["outcome"],
            registry=registry,
        )
        self.quota_slots = Gauge(
            "streamway_router_quota_slots",
            "Generations of tenants with limits that this router holds a slot for.",
            registry=registry,
        )
        self.quota_endings = Counter(
            "streamway_router_quota_endings",
            "Reservations that ended: settled by what was used, closed unused, abandoned with their charge.",
            ["outcome"],
            registry=registry,
        )
        self.quota_local = Counter(
            "streamway_router_quota_local",
            "Reservations decided by this router's memory, since the store was away.",
            registry=registry,
        )
        self.generations = Gauge(
            "streamway_router_generations", "Generations in flight that this router dispatched.", registry=registry
        )
        self.cache_lookups = Counter(
            "streamway_router_cache_lookups", "Cache lookups, by outcome.", ["outcome"], registry=registry
        )
        self.cache_stores = Counter(
            "streamway_router_cache_stores", "Answers offered to the cache, by outcome.", ["outcome"], registry=registry
        )
        self.workers = Gauge("streamway_router_workers", "Known workers, by state.", ["state"], registry=registry)
        self.kv_full = Gauge(
            "streamway_router_workers_kv_full",
            "Workers whose KV cache is too full for another prefill: nothing is placed there.",
            registry=registry,
        )
        self.workers_wanted = Gauge(
            "streamway_router_workers_wanted",
            "Workers there should be: two more while one is short of memory; to be started on other machines.",
            registry=registry,
        )
        self.stale_reports = Gauge(
            "streamway_router_stale_reports", "Workers whose load report is too old to count.", registry=registry
        )
        self.report_age = Gauge(
            "streamway_router_report_age_seconds",
            "Age of the load report that has not been renewed for longest.",
            registry=registry,
        )
        self.breakers = Gauge(
            "streamway_router_breakers",
            "Breakers that have not been closed all the time: 0 closed, 1 open, 2 half open.",
            ["worker", "model", "tier"],
            registry=registry,
        )
        self.breaker_transitions = Counter(
            "streamway_router_breaker_transitions",
            "Changes of breakers, and whether another router found it (learned).",
            ["tier", "before", "after", "by"],
            registry=registry,
        )
        self.outcomes = Counter(
            "streamway_router_outcomes",
            "Ends of generations as breakers see them: success, failure, nothing.",
            ["outcome"],
            registry=registry,
        )
        self.panics = Counter(
            "streamway_router_panics",
            "Decisions made past the breakers, since more than half of the pool was barred.",
            ["tier"],
            registry=registry,
        )
        self.expelled = Counter(
            "streamway_router_expelled_streams",
            "Open streams that were ended since the key of their caller is gone or its token has expired.",
            registry=registry,
        )
        self.streams = Gauge("streamway_router_streams", "Open Connect, Generate and Resume calls.", registry=registry)
