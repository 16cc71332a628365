"""Decisions in the words of the protos."""

from __future__ import annotations

import math

from services.cache.core.decide import Decision
from services.cache.core.savings import CREDITS, DEBITS, Account, Amount
from services.cache.core.semantic.history import History
from services.cache.core.semantic.partitions import Partitions
from services.cache.core.semantic.standing import Standing
from services.cache.core.semantic.switch import Switch
from services.cache.core.vetoes.finding import Severity
from streamway.v1 import cache_pb2


def explained(decision: Decision, partitions: Partitions) -> cache_pb2.ExplainResponse:
    """The decision with its grounds."""
    response = cache_pb2.ExplainResponse(
        outcome=decision.outcome.value,
        reason=decision.reason,
        threshold=_finite(decision.threshold.value),
        threshold_source=decision.threshold.source,
        audit_share=decision.share,
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
        audit_share=max(standing.policy.audit_share, threshold.audit),
        wrong_served=ledger.served_wrong,
        allowance=standing.pooled.allowance.balance if standing.keeps_budget else 0.0,
    )


def savings_of(account: Account) -> cache_pb2.Savings:
    """An account, line by line, and what is left."""
    told = cache_pb2.Savings()
    for name in (*CREDITS, *DEBITS):
        _tell(account.amount(name), told.lines.add(name=name, count=account.count(name), debit=name in DEBITS))
    _tell(account.balance, told.balance)
    return told


def tell_switch(switch: Switch, told: cache_pb2.SemanticStats) -> None:
    """Whether the level is asked, and why not."""
    told.state = switch.state
    told.window_money = switch.balance
    told.questions_left = switch.left


def tell_history(history: History, told: cache_pb2.SemanticStats) -> None:
    """What it did lately."""
    for point in history.points:
        told.history.add(
            question=point.question, threshold=point.threshold, wrong_bound=point.bound, source=point.source
        )
    for each in history.refused:
        told.near.add(
            question=each.question,
            near=each.near,
            similarity=each.similarity,
            finding=cache_pb2.ExplainedFinding(rule=each.rule, asked=each.asked, stored=each.stored, refuses=True),
        )


def _tell(amount: Amount, told: cache_pb2.SavingsLine) -> None:
    told.tokens, told.money, told.seconds = amount.tokens, amount.money, amount.seconds


def _finite(value: float) -> float:
    """Nothing reaches a threshold that is closed; infinity is no JSON."""
    return value if math.isfinite(value) else 0.0
