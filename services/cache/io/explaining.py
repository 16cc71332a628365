"""Decisions in the words of the protos."""

from __future__ import annotations

import math

from services.cache.core.decide import Decision
from services.cache.core.semantic.partitions import Partitions
from services.cache.core.semantic.standing import Standing
from services.cache.core.vetoes.finding import Severity
from streamway.v1 import cache_pb2


def explained(decision: Decision, partitions: Partitions) -> cache_pb2.ExplainResponse:
    """The decision with its grounds."""
    response = cache_pb2.ExplainResponse(
        outcome=decision.outcome.value,
        reason=decision.reason,
        threshold=_finite(decision.threshold.value),
        threshold_source=decision.threshold.source,
    )
    for judged in decision.judged:
        candidate = response.candidates.add(
            entry=judged.entry,
            question=partitions.question(judged.entry) or "",
            similarity=judged.similarity,
            needed=_finite(judged.needed),
            reason=judged.reason,
            probability=judged.probability,
        )
        for finding in judged.findings:
            candidate.findings.add(
                rule=finding.rule,
                asked=finding.asked,
                stored=finding.stored,
                refuses=finding.severity is Severity.REFUSE,
            )
    return response


def stats_of(standing: Standing) -> cache_pb2.SemanticStats:
    """What is known of a tenant."""
    threshold, ledger = standing.threshold, standing.ledger
    return cache_pb2.SemanticStats(
        threshold=_finite(threshold.value),
        source=threshold.source,
        wrong_bound=threshold.bound,
        labels=threshold.labels,
        asked=ledger.asked,
        hits=ledger.hits,
        audits=ledger.audits,
        compared=ledger.compared,
        wrong=ledger.wrong,
        refused=ledger.refused,
    )


def _finite(value: float) -> float:
    """Nothing reaches a threshold that is closed; infinity is no JSON."""
    return value if math.isfinite(value) else 0.0
