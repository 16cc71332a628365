"""Questions one after the other, the cache empty at first: hits and wrong ones over time, by policy.

A level answers as the service's would: the same text, the same folded text, then the nearest questions through `decide`, with a
tenant's `Standing` that draws, weighs, learns and is taught as there. A comparison is taken to be never mistaken.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt

from benchmarks.cache_eval.data import Asked
from services.cache.core import decide as deciding
from services.cache.core.decide import MOST_CANDIDATES, Candidate, Decision, Outcome, decide
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.standing import Ledger, Standing
from services.cache.core.verifier import UNTRAINED, FeatureVerifier, Opinion
from services.cache.core.vetoes.chain import NAMES
from services.cache.core.vetoes.text import Text
from streamway.cachekey.folded import folded

Vectors = npt.NDArray[np.float32]


@dataclass(slots=True)
class Run:
    """What one policy did: for each request whether it was answered, and whether wrongly. `labels`: comparisons made."""

    hits: list[bool] = field(default_factory=list)
    wrong: list[bool] = field(default_factory=list)
    labels: int = 0
    threshold: list[float] = field(default_factory=list)
    """In force at each request."""

    def add(self, right: bool | None, threshold: float = 0.0) -> None:
        """One request: None for a miss."""
        self.hits.append(right is not None)
        self.wrong.append(right is False)
        self.threshold.append(threshold)

    def after(self, skip: int) -> Run:
        """Without the first ones; `labels` stays what it was."""
        return Run(self.hits[skip:], self.wrong[skip:], self.labels, self.threshold[skip:])


@dataclass(frozen=True, slots=True)
class Policy:
    """A name and what makes a run of it."""

    name: str
    folds: bool = True
    options: SemanticOptions | None = None
    learns: bool = False
    """The verifier is asked, and taught."""

    def run(self, asked: Sequence[Asked], vectors: Vectors, seed: int, skip: int = 0) -> Run:
        """Over a stream; `vectors` has a row for each request. What came of the first `skip` is not told."""
        return _Simulation(self, asked, vectors, seed).run().after(skip)


def _options(
    threshold: float | None, *, rules: bool = True, budget: float = 0.01, refine: bool = False
) -> SemanticOptions:
    found = threshold is None
    return SemanticOptions(
        threshold="budget" if threshold is None else threshold,
        multilingual=True,
        budget=budget,
        audit_share=0.05 if found else 0.0,
        compare_share=0.3 if found else 0.0,
        shadow=False,
        disabled=() if rules else tuple(NAMES),
        refine=refine,
    )


POLICIES = (
    Policy("exact", folds=False),
    Policy("exact + folded"),
    Policy("0.92, no rules", options=_options(0.92, rules=False)),
    Policy("0.95, no rules", options=_options(0.95, rules=False)),
    Policy("0.92, rules", options=_options(0.92)),
    Policy("0.95, rules", options=_options(0.95)),
    Policy("budget 1 %, no rules", options=_options(None, rules=False)),
    Policy("budget 1 %, rules", options=_options(None)),
    Policy("budget 1 %, rules, verifier", options=_options(None), learns=True),
    Policy("budget 1 %, rules, verifier, by entry", options=_options(None, refine=True), learns=True),
    Policy("budget 2 %, rules", options=_options(None, budget=0.02)),
    Policy("budget 2 %, rules, verifier", options=_options(None, budget=0.02), learns=True),
)
# What the service does where nothing is configured.
DEFAULT = "budget 1 %, rules, verifier"


# Analysed once for all policies.
_TEXTS: dict[str, Text] = {}


class _Simulation:
    """One run."""

    def __init__(self, policy: Policy, asked: Sequence[Asked], vectors: Vectors, seed: int) -> None:
        self._policy = policy
        self._asked = asked
        self._vectors = vectors
        self._draws = random.Random(seed)
        self._standing = Standing(policy.options, Ledger()) if policy.options is not None else None
        self._rows = np.zeros_like(vectors)
        self._entries: list[int] = []
        self._exact: dict[str, int] = {}
        self._folds: dict[str, int] = {}
        self._gone: set[int] = set()
        self._run = Run()

    def run(self) -> Run:
        """All of it."""
        for at, asked in enumerate(self._asked):
            entry = self._known(asked.text)
            if entry is None and self._standing is not None:
                entry = self._alike(at, self._standing)
            threshold = self._standing.threshold.value if self._standing is not None else 0.0
            self._run.add(None if entry is None else self._right(entry, at), threshold)
            if entry is None:
                self._store(at)
        return self._run

    def _known(self, text: str) -> int | None:
        entry = self._exact.get(text)
        if entry is None and self._policy.folds:
            entry = self._folds.get(folded(text) or text)
        return None if entry in self._gone else entry

    def _right(self, entry: int, at: int) -> bool:
        return self._asked[entry].category == self._asked[at].category

    def _alike(self, at: int, standing: Standing) -> int | None:
        text = self._asked[at].text
        draw = self._draws.random()
        question = deciding.Asked(text.encode(), self._text(text), draw)
        nearest = self._nearest(at)
        decision = self._decide(nearest, question, standing)
        standing.decided(decision)
        for comparison in decision.compare:
            entry = int(comparison.entry)
            right = self._right(entry, at)
            standing.compared(comparison, right)
            self._run.labels += 1
            if decision.outcome is Outcome.AUDIT and not right:
                stored = self._asked[entry].text.encode()
                if standing.wrong_hits.report(comparison.entry, question.key, stored, comparison.similarity).evict:
                    self._gone.add(entry)
        lesson = standing.lesson() if self._policy.learns else None
        if lesson is not None:
            verifier = FeatureVerifier()
            if verifier.fit(lesson):
                standing.verifier = verifier
        served = decision.outcome is Outcome.SERVE and decision.entry is not None
        return int(decision.entry or 0) if served else None

    def _decide(self, nearest: list[Candidate], asked: deciding.Asked, standing: Standing) -> Decision:
        opinions: dict[str, Opinion] = {}
        while True:
            decision = decide(nearest, asked, standing.policy, opinions)
            if decision.outcome is not Outcome.VERIFY or decision.pair is None or decision.entry is None:
                return decision
            chance = standing.verifier.estimate(decision.pair) if self._policy.learns else None
            opinions[decision.entry] = UNTRAINED if chance is None else Opinion(chance, "verified")

    def _nearest(self, at: int) -> list[Candidate]:
        scores = self._rows[: len(self._entries)] @ self._vectors[at]
        best = [(self._entries[i], float(scores[i])) for i in np.argsort(-scores)[: MOST_CANDIDATES + len(self._gone)]]
        return [
            Candidate(str(entry), self._asked[entry].text.encode(), self._text(self._asked[entry].text), score)
            for entry, score in best
            if entry not in self._gone
        ][:MOST_CANDIDATES]

    def _store(self, at: int) -> None:
        if self._standing is not None:
            self._standing.used(str(at))
        self._rows[len(self._entries)] = self._vectors[at]
        self._entries.append(at)
        text = self._asked[at].text
        self._exact[text] = at
        self._folds[folded(text) or text] = at

    def _text(self, text: str) -> Text:
        return _TEXTS.setdefault(text, Text(text))


Orders = Sequence[Sequence[Asked]]


def run_all(
    orders: Orders,
    encode: Callable[[list[str]], Vectors],
    skip: int = 0,
    only: Sequence[str] = (),
    done: Callable[[int], None] = lambda _: None,
) -> dict[str, list[Run]]:
    """Each policy, or those named, over each order; see `Policy.run`. `done` is told of requests that are through."""
    policies = [policy for policy in POLICIES if not only or policy.name in only]
    vectors = [encode([each.text for each in order]) for order in orders]
    runs = {
        policy.name: [
            _processes().submit(policy.run, order, rows, seed, skip)
            for seed, (order, rows) in enumerate(zip(orders, vectors, strict=True), 1)
        ]
        for policy in policies
    }
    lengths = {run: len(order) for of_policy in runs.values() for run, order in zip(of_policy, orders, strict=True)}
    for run in as_completed(lengths):
        done(lengths[run])
    return {name: [each.result() for each in of_policy] for name, of_policy in runs.items()}


@cache
def _processes() -> ProcessPoolExecutor:
    """For all streams: what they have analysed stays. No fork: threads of the encoder would be left behind half."""
    return ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("forkserver"))
