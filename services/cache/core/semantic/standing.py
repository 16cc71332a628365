"""What the semantic level knows of a tenant: its threshold, its wrong answers, its verifier, and what came of its questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from services.cache.core.allowance import stands_for
from services.cache.core.decide import Comparison, Decision, Outcome, Policy
from services.cache.core.labels import Label
from services.cache.core.refinement import Refinement, Seen
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.staleness import Staleness
from services.cache.core.threshold import START, START_MULTILINGUAL, Budget, PooledThreshold, Threshold, static
from services.cache.core.trust import Trust
from services.cache.core.verifier import FeatureVerifier
from services.cache.core.vetoes.chain import Chain
from services.cache.core.wrong_hits import Consequence, WrongHits
from streamway.runtime.recent import Recent

# Tenants beyond so many begin anew when they come back.
_MOST_TENANTS: Final = 4096
# Labels between two fits of a verifier.
_FIT_EVERY: Final = 50
# Labels beside those of the threshold, by which a verifier that can learn has learned.
_MOST_LESSONS: Final = 1_000


@dataclass(slots=True)
class Ledger:
    """What came of the questions of a tenant. `refused` counts near questions by the rule that refused them."""

    asked: int = 0
    hits: int = 0
    audits: int = 0
    compared: int = 0
    wrong: int = 0
    served_wrong: float = 0.0
    """Wrong answers that were served, by what was found of those that would have been; see `allowance`."""
    refused: Counter[str] = field(default_factory=Counter)


class Standing:
    """One tenant's."""

    def __init__(self, options: SemanticOptions, total: Ledger) -> None:
        self._total = total
        self.go_by(options)
        start = START_MULTILINGUAL if options.multilingual else START
        self.pooled = PooledThreshold(Budget(wrong=options.budget, start=start))
        self._unlearned = 0
        self._lessons: list[Label] = []
        self.wrong_hits = WrongHits()
        self.refinement = Refinement()
        self.staleness = Staleness()
        self.trust = Trust()
        self.verifier = FeatureVerifier()
        self.ledger = Ledger()
        # Something was learned that has not been saved; `urgent`: an answer was wrong.
        self.unsaved = False
        self.urgent = False

    def go_by(self, options: SemanticOptions) -> None:
        """Changes how the next decisions are made; what was learned stays. The budget is that of the beginning."""
        self._options = options
        self._chain = Chain(options.disabled)
        asked_for = options.threshold
        self._fixed: Threshold | None = None
        if asked_for != "budget":
            value = None if asked_for == "static" else asked_for
            self._fixed = static(value, multilingual=options.multilingual)

    @property
    def options(self) -> SemanticOptions:
        """What it goes by."""
        return self._options

    @property
    def keeps_budget(self) -> bool:
        """The threshold is found from comparisons."""
        return self._fixed is None

    @property
    def threshold(self) -> Threshold:
        """In force."""
        return self._fixed or self.pooled.threshold

    @property
    def policy(self) -> Policy:
        """What the next decision goes by."""
        options = self._options
        return Policy(
            self._chain,
            self.threshold,
            self.wrong_hits,
            audit_share=options.audit_share,
            compare_share=options.compare_share,
            lesson_share=1.0 if self._may_learn else 0.0,
            shadow=options.shadow,
            refinement=self.refinement if options.refine and self.keeps_budget else None,
            staleness=self.staleness if self.keeps_budget else None,
            now=self.pooled.requests,
            trust=self.trust if self.keeps_budget else None,
        )

    @property
    def _may_learn(self) -> bool:
        """The verifier is untrained: every miss teaches it, since a worker answers that anyway."""
        asked_for = self.keeps_budget and self._options.compare_share > 0
        return asked_for and not self.verifier.trained and len(self._lessons) < _MOST_LESSONS

    def decided(self, decision: Decision) -> None:
        """A question has been decided."""
        self.pooled.request()
        if decision.outcome is Outcome.SERVE and decision.entry is not None:
            self.used(decision.entry)
            self.trust.served(decision.entry)
        for ledger in (self.ledger, self._total):
            ledger.asked += 1
            ledger.hits += decision.outcome is Outcome.SERVE
            ledger.audits += decision.outcome is Outcome.AUDIT
            ledger.refused.update(each.findings[0].rule for each in decision.judged if each.reason == "refused")

    def used(self, entry: str) -> None:
        """An entry was stored, served, or found right."""
        self.staleness.used(entry, self.pooled.requests)

    def compared(self, comparison: Comparison, right: bool) -> None:
        """The fresh answer was compared with an entry's."""
        for ledger in (self.ledger, self._total):
            ledger.compared += 1
            ledger.wrong += not right
        self.unsaved = True
        label = comparison.label(right)
        if label.row is not None:
            self._unlearned += 1
            if label.probability is None:
                label.probability = self.verifier.estimate_of(label.row)
        seen = Seen(comparison.similarity, right)
        if comparison.lesson:
            self._lessons.append(label)
        else:
            if comparison.audit and not right:
                self._served_wrong(comparison.share)
            self.pooled.add(label)
            if self._options.refine:
                self.refinement.take(comparison.entry, seen)
            if label.is_open():
                self.staleness.take(comparison.entry, self.pooled.requests, seen)
        self.trust.compared(comparison.entry, right)
        if right:
            self.used(comparison.entry)

    def _served_wrong(self, share: float) -> None:
        for ledger in (self.ledger, self._total):
            ledger.served_wrong += stands_for(share)
        if self.keeps_budget:
            self.pooled.allowance.found_wrong(share)

    def wrong(self, entry: str, asked: bytes, stored: bytes, similarity: float) -> Consequence:
        """An entry was the wrong answer: see `WrongHits.report`."""
        self.unsaved = self.urgent = True
        return self.wrong_hits.report(entry, asked, stored, similarity)

    def lesson(self) -> tuple[Label, ...] | None:
        """What a new verifier is to be made from, when there is enough that is new."""
        if self._unlearned < _FIT_EVERY:
            return None
        self._unlearned = 0
        return (*self._lessons, *self.pooled.labels)


class Standings:
    """Of all tenants, the longest unused forgotten first. `options_of` gives what holds for a tenant now; it may change."""

    def __init__(self, options_of: Callable[[str], SemanticOptions]) -> None:
        self.total = Ledger()
        self._options_of = options_of
        self._tenants: Recent[str, Standing] = Recent(_MOST_TENANTS)

    def of(self, tenant: str) -> Standing:
        """A tenant's; a new one for one that was never here."""
        options = self._options_of(tenant)
        standing = self._tenants.get(tenant) or self._tenants.put(tenant, Standing(options, self.total))
        if standing.options != options:
            standing.go_by(options)
        return standing

    def known(self, tenant: str) -> Standing | None:
        """A tenant's, if it was here."""
        return self._tenants.get(tenant)

    def unsaved(self) -> list[tuple[str, Standing]]:
        """Those of whom something was learned since they were saved."""
        return [(tenant, standing) for tenant, standing in self._tenants.items() if standing.unsaved]
