"""Labelled pairs: how many reusable ones are served, and how many traps, by arm, threshold and kind of trap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cache_eval.data import LabelledPair, is_reported
from benchmarks.cache_eval.encoder import Encoded
from benchmarks.cache_eval.figures import Rate, interval, table
from benchmarks.cache_eval.rules import AT_LEAST, Near, report_rules
from services.cache.core.labels import SURE, Label, Row
from services.cache.core.verifier import FeatureVerifier, Pair, row_of
from services.cache.core.vetoes.chain import Chain, Verdict
from services.cache.core.vetoes.text import Text

THRESHOLDS = (0.75, 0.85, 0.88, 0.90, 0.92, 0.94, 0.95, 0.97)
_BUDGETS = (0.05, 0.02)


@dataclass(slots=True)
class Scored:
    """A pair with everything an arm decides by."""

    pair: LabelledPair
    similarity: float
    verdict: Verdict
    row: Row
    probability: float = 0.0

    @property
    def doubts(self) -> frozenset[str]:
        """The rules that doubt it."""
        return frozenset(finding.rule for finding in self.verdict.doubts)


Arm = Callable[[Scored], bool]
ARMS: dict[str, Arm] = {
    "no guard": lambda _: True,
    "refusals": lambda each: each.verdict.refusal is None,
    "core": lambda each: each.verdict.refusal is None and not each.doubts - {"swap", "insertion"},
    "+ swap": lambda each: each.verdict.refusal is None and not each.doubts - {"insertion"},
    "+ insertion": lambda each: each.verdict.refusal is None and not each.doubts,
    "+ verifier": lambda each: each.verdict.refusal is None and (not each.doubts or each.probability >= SURE),
}


def report_pairs(
    name: str, pairs: Sequence[LabelledPair], encoded: Encoded, peers: Mapping[str, Mapping[str, bool]]
) -> list[Scored]:
    """Prints the tables of one set: the reported half, with the verifier trained on the other one; gives that half.

    `peers` has what other caches serve: by their name, whether a pair, by its id, is answered, for some of them.
    """
    scored = _score(pairs, encoded)
    verifier = _train([each for each in scored if not is_reported(each.pair.id)])
    shown = [each for each in scored if is_reported(each.pair.id)]
    for each in shown:
        each.probability = verifier.estimate_of(each.row) or 0.0
    good = [each for each in shown if each.pair.reusable]
    bad = [each for each in shown if not each.pair.reusable]
    state = "trained on the other half" if verifier.trained else "untrained: too few labels"
    words = sorted(len(each.pair.b.split()) for each in shown)
    print(f"## {name}: {len(good)} reusable pairs and {len(bad)} traps (reported half); verifier {state}")
    print(f"\nlength: {words[len(words) // 2]} words in the median, {words[-1]} at most; served: reusable / traps, %\n")
    rows = []
    for threshold in THRESHOLDS:
        cells = [f"{_share(good, arm, threshold):.0f} / {_share(bad, arm, threshold):.1f}" for arm in ARMS.values()]
        rows.append((f"{threshold:.2f}", *cells))
    table(("similarity >=", *ARMS), rows)
    for peer, served in peers.items():
        rates = answered(shown, served)
        print(f"{peer}, of {len(served)} of these: reusable {rates[0]} %, traps {rates[1]} % (95 % intervals)")
    print()
    table(
        ("reusable served at a trap rate of", *ARMS),
        [(f"{budget:.0%}", *(_best(good, bad, arm, budget) for arm in ARMS.values())) for budget in _BUDGETS],
    )
    _by_kind(shown)
    near = [each for each in shown if each.similarity >= AT_LEAST]
    report_rules(name, [Near(each.pair.a, each.pair.b, each.pair.reusable) for each in near])
    _cost(shown)
    return shown


def answered(scored: Sequence[Scored], served: Mapping[str, bool]) -> tuple[Rate, Rate]:
    """Of the reusable pairs and of the traps that another cache was asked."""
    asked = [each for each in scored if each.pair.id in served]
    parts = [each for each in asked if each.pair.reusable], [each for each in asked if not each.pair.reusable]
    good, bad = (Rate(sum(served[each.pair.id] for each in part), len(part)) for part in parts)
    return good, bad


def _score(pairs: Sequence[LabelledPair], encoded: Encoded) -> list[Scored]:
    texts = sorted({text for pair in pairs for text in (pair.a, pair.b)})
    place = {text: at for at, text in enumerate(texts)}
    vectors = encoded.of(texts)
    chain = Chain()
    scored = []
    for pair in pairs:
        asked, stored = Text(pair.a), Text(pair.b)
        similarity = float(vectors[place[pair.a]] @ vectors[place[pair.b]])
        verdict = chain.judge(asked, stored)
        scored.append(Scored(pair, similarity, verdict, row_of(Pair(asked, stored, similarity, verdict.doubts))))
    return scored


def _train(scored: Iterable[Scored]) -> FeatureVerifier:
    """As a deployment would: from pairs that the rules leave to it. Small sets have too few for its usual minimum."""
    verifier = FeatureVerifier(least=60, least_of_each=20)
    verifier.fit(
        [Label(each.similarity, each.pair.reusable, 1.0, each.row) for each in scored if each.verdict.refusal is None]
    )
    return verifier


def _share(scored: Sequence[Scored], arm: Arm, threshold: float) -> float:
    """Percent of them that are served."""
    return 100 * sum(each.similarity >= threshold and arm(each) for each in scored) / (len(scored) or 1)


def _best(good: Sequence[Scored], bad: Sequence[Scored], arm: Arm, budget: float) -> str:
    """The most reusable pairs that any threshold serves within the budget of traps."""
    levels = sorted({round(each.similarity, 4) for each in (*good, *bad)})
    best = max((_share(good, arm, t) for t in levels if _share(bad, arm, t) <= 100 * budget), default=0.0)
    low, high = interval(round(best * len(good) / 100), len(good))
    return f"{best:.0f} ({low:.0f}–{high:.0f})"


def _by_kind(scored: Sequence[Scored]) -> None:
    kinds: dict[tuple[bool, str], list[Scored]] = {}
    for each in scored:
        kinds.setdefault((each.pair.reusable, each.pair.category), []).append(each)
    rows = []
    for (reusable, kind), of_kind in sorted(kinds.items()):
        refused: dict[str, int] = {}
        for each in of_kind:
            if each.verdict.refusal:
                refused[each.verdict.refusal.rule] = refused.get(each.verdict.refusal.rule, 0) + 1
        by = ", ".join(f"{rule} {count}" for rule, count in sorted(refused.items(), key=lambda item: -item[1]))
        doubted = sum(bool(each.doubts) and each.verdict.refusal is None for each in of_kind)
        clean = len(of_kind) - doubted - sum(refused.values())
        mean = sum(each.similarity for each in of_kind) / len(of_kind)
        served = Rate(sum(each.similarity >= 0.92 and ARMS["+ verifier"](each) for each in of_kind), len(of_kind))
        rows.append((kind, len(of_kind), "yes" if reusable else "no", f"{mean:.3f}", by or "–", doubted, clean, served))
    table(
        ("kind", "pairs", "reusable", "mean similarity", "refused by", "doubted only", "clean", "served at 0.92, %"),
        rows,
    )


def _cost(scored: Sequence[Scored]) -> None:
    chain = Chain()
    texts = [(Text(each.pair.a), Text(each.pair.b)) for each in scored]
    spent = []
    for _ in range(2):
        began = time.process_time()
        for asked, stored in texts:
            chain.judge(asked, stored)
        spent.append((time.process_time() - began) / (len(texts) or 1) * 1e6)
    print(f"\nrules: {spent[0]:.0f} µs of CPU a pair with the analysis of both texts, {spent[1]:.0f} µs after it\n")
