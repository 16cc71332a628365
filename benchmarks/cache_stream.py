"""A stream of questions in random order, the cache empty at first: hits and wrong ones over time, by policy."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from services.cache.core.decide import MOST_CANDIDATES, Asked, Candidate, Decision, Outcome, Policy, decide
from services.cache.core.threshold import START_MULTILINGUAL, Budget, PooledThreshold, Threshold
from services.cache.core.verifier import UNTRAINED, FeatureVerifier, Opinion
from services.cache.core.vetoes.chain import NAMES, Chain
from services.cache.core.vetoes.text import Text
from services.cache.core.wrong_hits import WrongHits

_REPORTED = (500, 1000, 2000, 3000, 5000)
# How often the verifier learns anew, in requests.
_LEARN_EVERY = 250
_Z = 1.96

Stream = list[tuple[str, str]]


def read_stream(path: Path) -> Stream:
    """Questions with what they are about, of a file with the columns text and category; empty for another file."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not {"text", "category"} <= set(reader.fieldnames or ()):
            return []
        return [(row["text"], row["category"]) for row in reader]


@dataclass(slots=True)
class Arm:
    """A policy under test and what came of it."""

    name: str
    chain: Chain
    pooled: PooledThreshold | None = None
    fixed: float = 0.0
    verifier: FeatureVerifier | None = None
    hits: int = 0
    wrong: int = 0
    labels: int = 0


def arms() -> list[Callable[[], Arm]]:
    """Fixed thresholds and budgets, without rules, with them, and with the verifier."""
    none, lenient, rules = Chain(NAMES), Chain(("swap", "insertion", "scope")), Chain()

    def pooled(wrong: float) -> PooledThreshold:
        return PooledThreshold(Budget(wrong, start=START_MULTILINGUAL))

    return [
        lambda: Arm("0.92, no rules", none, fixed=0.92),
        lambda: Arm("0.92, rules that refuse", lenient, fixed=0.92),
        lambda: Arm("0.92, all rules", rules, fixed=0.92),
        lambda: Arm("0.95, no rules", none, fixed=0.95),
        lambda: Arm("0.95, all rules", rules, fixed=0.95),
        lambda: Arm("budget 1 %, no rules", none, pooled(0.01)),
        lambda: Arm("budget 1 %, all rules", rules, pooled(0.01)),
        lambda: Arm("budget 1 %, all rules, verifier", rules, pooled(0.01), verifier=FeatureVerifier()),
        lambda: Arm("budget 2 %, no rules", none, pooled(0.02)),
        lambda: Arm("budget 2 %, all rules", rules, pooled(0.02)),
        lambda: Arm("budget 2 %, all rules, verifier", rules, pooled(0.02), verifier=FeatureVerifier()),
    ]


def report_stream(name: str, stream: Stream, encoder: Any, seeds: Sequence[int]) -> None:
    """Prints a line for each policy: hits and wrong ones per request so far, in the mean over orders of the stream."""
    encoded = dict(zip([text for text, _ in stream], encoder.encode([text for text, _ in stream]), strict=True))
    texts = {text: Text(text) for text in encoded}
    points = [point for point in _REPORTED if point < len(stream)] + [len(stream)]
    print(f"## {name}: {len(stream)} requests in {len(seeds)} orders; hits / wrong per request, %\n")
    print("| policy | " + " | ".join(f"after {p}" for p in points) + " | wrong, 95 % interval | compared | threshold |")
    print(f"|---{'|---' * (len(points) + 3)}|")
    for make in arms():
        done = []
        for seed in seeds:
            order = list(stream)
            random.Random(seed).shuffle(order)
            vectors = np.stack([encoded[text] for text, _ in order])
            arm = make()
            done.append((arm, _run(arm, order, [texts[text] for text, _ in order], vectors, points, seed)))
        means = np.mean([found for _, found in done], axis=0)
        cells = " | ".join(f"{hits:.1f} / {wrong:.2f}" for hits, wrong in means)
        low, high = _interval(sum(arm.wrong for arm, _ in done), len(stream) * len(seeds))
        last = sorted(arm.pooled.threshold.value if arm.pooled else arm.fixed for arm, _ in done)[len(done) // 2]
        labels = sum(arm.labels for arm, _ in done) // len(done)
        print(f"| {done[0][0].name} | {cells} | {low:.2f}–{high:.2f} | {labels} | {last:.3f} |", flush=True)
    print()


def _run(
    arm: Arm, stream: Stream, texts: Sequence[Text], vectors: npt.NDArray[np.float32], points: Sequence[int], seed: int
) -> list[tuple[float, float]]:
    draws = random.Random(seed)
    index = _Index(*vectors.shape)
    wrong_hits = WrongHits()
    found = []
    for at in range(len(stream)):
        nearest = index.nearest(vectors[at], texts)
        threshold = arm.pooled.threshold if arm.pooled else Threshold(arm.fixed, "configured")
        policy = Policy(
            arm.chain,
            threshold,
            wrong_hits,
            audit_share=0.05 if arm.pooled else 0.0,
            compare_share=0.3 if arm.pooled else 0.0,
        )
        asked = Asked(str(at).encode(), texts[at], draws.random())
        decision = _decide(nearest, asked, policy, arm.verifier)
        if decision.outcome is Outcome.SERVE and decision.entry is not None:
            arm.hits += 1
            arm.wrong += stream[int(decision.entry)][1] != stream[at][1]
        else:
            index.add(at, vectors[at])
        _learn(arm, decision, stream, at, wrong_hits)
        if at + 1 in points:
            found.append((100 * arm.hits / (at + 1), 100 * arm.wrong / (at + 1)))
    return found


class _Index:
    """The questions that have an entry, in one matrix."""

    def __init__(self, most: int, dimension: int) -> None:
        self._rows = np.zeros((most, dimension), dtype=np.float32)
        self._entries: list[int] = []

    def add(self, entry: int, vector: npt.NDArray[np.float32]) -> None:
        self._rows[len(self._entries)] = vector
        self._entries.append(entry)

    def nearest(self, vector: npt.NDArray[np.float32], texts: Sequence[Text]) -> list[Candidate]:
        """The candidates of a decision."""
        scores = self._rows[: len(self._entries)] @ vector
        best = [(self._entries[i], float(scores[i])) for i in np.argsort(-scores)[:MOST_CANDIDATES]]
        return [Candidate(str(entry), str(entry).encode(), texts[entry], score) for entry, score in best]


def _decide(nearest: list[Candidate], asked: Asked, policy: Policy, verifier: FeatureVerifier | None) -> Decision:
    opinions: dict[str, Opinion] = {}
    while True:
        decision = decide(nearest, asked, policy, opinions)
        if decision.outcome is not Outcome.VERIFY or decision.pair is None or decision.entry is None:
            return decision
        chance = verifier.estimate(decision.pair) if verifier else None
        opinions[decision.entry] = UNTRAINED if chance is None else Opinion(chance, "verified")


def _learn(arm: Arm, decision: Decision, stream: Stream, at: int, wrong_hits: WrongHits) -> None:
    """What the service does in the background with the comparisons of a decision."""
    if arm.pooled is None:
        return
    for each in decision.compare:
        right = stream[int(each.entry)][1] == stream[at][1]
        label = each.label(right)
        if label.row is not None and label.probability is None and arm.verifier is not None:
            label.probability = arm.verifier.estimate_of(label.row)
        arm.pooled.add(label)
        arm.labels += 1
        if not right and decision.outcome is Outcome.AUDIT:
            wrong_hits.report(each.entry, str(at).encode(), each.entry.encode(), each.similarity)
    arm.pooled.request()
    if arm.verifier is not None and at % _LEARN_EVERY == 0:
        arm.verifier.fit(arm.pooled.labels)


def _interval(count: int, total: int) -> tuple[float, float]:
    """Wilson's, in percent."""
    share = count / total
    middle = share + _Z**2 / (2 * total)
    spread = _Z * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    return 100 * (middle - spread) / (1 + _Z**2 / total), 100 * (middle + spread) / (1 + _Z**2 / total)
