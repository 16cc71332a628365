"""Prometheus metrics of the cache."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.cache.core.savings import CREDITS, DEBITS, Account
from services.cache.core.store import ExactCache
from services.cache.io.answers import Answers
from services.cache.io.index_files import IndexFiles
from services.cache.io.likeness import Likeness
from services.cache.io.persistence import Persistence


class CacheMetrics(Collector):
    """Reads the cache's own counters at each scrape; only durations are recorded on the way."""

    def __init__(self, registry: CollectorRegistry, cache: ExactCache, answers: Answers) -> None:
        self._cache = cache
        self._answers = answers
        self.batch_seconds = Histogram(
            "streamway_cache_batch_seconds",
            "Time to work through one batch of an Exchange stream.",
            buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1),
            registry=registry,
        )
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        stats = self._cache.stats(None)
        lookups = CounterMetricFamily("streamway_cache_lookups", "Lookups by outcome.", labels=["outcome"])
        lookups.add_metric(["hit_exact"], stats.hits)
        lookups.add_metric(["hit_folded"], stats.folded_hits)
        lookups.add_metric(["hit_semantic"], stats.semantic_hits)
        lookups.add_metric(["miss"], stats.misses)
        lookups.add_metric(["bypass"], stats.bypassed)
        yield lookups
        yield from _savings(self._answers.books.total)
        yield CounterMetricFamily("streamway_cache_stores", "Answers stored.", value=stats.stored)
        yield CounterMetricFamily(
            "streamway_cache_inserts_refused", "Answers over a quota of inserts.", value=self._answers.inserts.refused
        )
        yield CounterMetricFamily("streamway_cache_evictions", "Entries evicted to make room.", value=stats.evicted)
        yield GaugeMetricFamily("streamway_cache_entries", "Entries now.", value=stats.entries)
        yield GaugeMetricFamily("streamway_cache_bytes", "Bytes of all entries.", value=stats.bytes)
        yield GaugeMetricFamily("streamway_cache_limit_bytes", "Most bytes they may have.", value=stats.limit_bytes)
        if self._answers.persistence is not None:
            yield from _store(self._answers.persistence)
        if self._answers.likeness is not None:
            yield from _likeness(self._answers.likeness)


def _store(persistence: Persistence) -> Iterator[Metric]:
    tally, known = persistence.tally, persistence.known
    writes = CounterMetricFamily(
        "streamway_cache_store_writes", "Entries for Valkey, by what became of them.", labels=["outcome"]
    )
    writes.add_metric(["kept"], tally.kept)
    writes.add_metric(["dropped"], tally.dropped)
    writes.add_metric(["refused"], tally.refused)
    yield writes
    reads = CounterMetricFamily(
        "streamway_cache_store_reads", "Lookups that went to Valkey, by what came of it.", labels=["outcome"]
    )
    reads.add_metric(["found"], tally.read)
    reads.add_metric(["late"], tally.late)
    yield reads
    yield CounterMetricFamily("streamway_cache_store_damaged", "Values that no cache wrote.", value=tally.damaged)
    yield CounterMetricFamily("streamway_cache_store_trimmed", "Entries removed to make room.", value=tally.trimmed)
    yield CounterMetricFamily(
        "streamway_cache_store_rebuilds", "Times that everything was read, as after a gap.", value=tally.rebuilt
    )
    yield GaugeMetricFamily("streamway_cache_store_entries", "Entries in Valkey that are known.", value=len(known))
    yield GaugeMetricFamily("streamway_cache_store_bytes", "Bytes of them.", value=known.size_bytes)


class IndexFileMetrics(Collector):
    """Files of indexes by what became of them."""

    def __init__(self, registry: CollectorRegistry, files: IndexFiles) -> None:
        self._files = files
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        files = CounterMetricFamily(
            "streamway_cache_index_files", "Files of indexes that were written, read or refused.", labels=["outcome"]
        )
        for outcome, count in self._files.outcomes.items():
            files.add_metric([outcome], count)
        yield files


def _savings(account: Account) -> Iterator[Metric]:
    for unit, of in (("money", "money"), ("seconds", "seconds"), ("tokens", "tokens")):
        posted = CounterMetricFamily(
            f"streamway_cache_ledger_{unit}",
            f"What the cache saved and cost, in {unit}, by posting.",
            labels=["posting"],
        )
        for name in (*CREDITS, *DEBITS):
            posted.add_metric([name], getattr(account.amount(name), of))
        yield posted


def _likeness(likeness: Likeness) -> Iterator[Metric]:
    total = likeness.standings.total
    decided = CounterMetricFamily(
        "streamway_cache_semantic_questions", "Questions by what was decided.", labels=["outcome"]
    )
    decided.add_metric(["serve"], total.hits)
    decided.add_metric(["audit"], total.audits)
    decided.add_metric(["miss"], total.asked - total.hits - total.audits)
    yield decided
    yield CounterMetricFamily(
        "streamway_cache_near_duplicates",
        "Answers kept by their key alone, since a question that is nearly the same has the same answer.",
        value=likeness.near_duplicates,
    )
    compared = CounterMetricFamily(
        "streamway_cache_semantic_compared", "Fresh answers compared with an entry's.", labels=["verdict"]
    )
    compared.add_metric(["same"], total.compared - total.wrong)
    compared.add_metric(["other"], total.wrong)
    yield compared
    yield CounterMetricFamily(
        "streamway_cache_semantic_wrong_served",
        "Wrong answers that were served, estimated from those that were found in place of being served.",
        value=total.served_wrong,
    )
    refused = CounterMetricFamily(
        "streamway_cache_semantic_refused", "Near questions refused, by rule.", labels=["rule"]
    )
    for rule, count in total.refused.items():
        refused.add_metric([rule], count)
    yield refused
    yield GaugeMetricFamily(
        "streamway_cache_semantic_entries", "Entries that can be found by likeness.", value=len(likeness.partitions)
    )
    yield GaugeMetricFamily(
        "streamway_cache_semantic_contexts", "Contexts with such entries.", value=likeness.partitions.contexts
    )
    yield GaugeMetricFamily(
        "streamway_cache_semantic_vector_bytes", "Bytes of all their vectors.", value=likeness.partitions.size_bytes
    )
    indexes = GaugeMetricFamily(
        "streamway_cache_semantic_index_bytes", "Bytes of the indexes of large contexts, by kind.", labels=["kind"]
    )
    for kind, size_bytes in likeness.partitions.index_bytes.items():
        indexes.add_metric([kind.value], size_bytes)
    yield indexes
    yield GaugeMetricFamily(
        "streamway_cache_encoder_up", "1 while the encoder tells texts apart.", value=not likeness.encoding.refused
    )
