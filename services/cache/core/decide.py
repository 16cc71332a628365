"""Whether one of the nearest stored questions answers what is asked, and everything needed to explain it.

Candidates are tried from the nearest on, since the nearest is often the trap:

    above the threshold? ─ denied? ─ rules ─ clean ──────────────────► served, or audited by a draw
                                       ├── refused ► the next one
                                       └── doubted ► the verifier ─ sure ► served, or audited
                                                          └─ unsure, untrained, away ► the next one

The verifier is asked about the nearest doubted one only: of five guesses the luckiest would win, and what is compared to
know how often it errs is the nearest one too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

from services.cache.core.labels import SURE, Label
from services.cache.core.refinement import Refinement
from services.cache.core.staleness import Staleness
from services.cache.core.threshold import Threshold
from services.cache.core.trust import Trust
from services.cache.core.verifier import Opinion, Pair, row_of
from services.cache.core.vetoes.chain import Chain, Verdict
from services.cache.core.vetoes.finding import Finding
from services.cache.core.vetoes.text import Text
from services.cache.core.wrong_hits import WrongHits

MOST_CANDIDATES: Final = 5
# Cosines of unit vectors in float32 exceed 1 by so much.
_ROUNDING: Final = 1e-4

Reason = Literal[
    "hit",
    "verified",
    "no_candidates",
    "not_a_similarity",
    "too_long",
    "denied",
    "refused",
    "below_threshold",
    "below_entry_floor",
    "below_request_threshold",
    "to_verify",
    "not_asked",
    "doubted",
    "verifier_untrained",
    "verifier_unavailable",
    "unvouched",
]


# Of what the rules doubt, at or above the threshold.
_VERIFIED: Final = ("to_verify", "verified", "doubted", "verifier_untrained", "verifier_unavailable")


class Outcome(Enum):
    """What to do."""

    SERVE = "serve"
    """Answer with the entry."""
    AUDIT = "audit"
    """It would have been served; ask the model all the same and compare, so that the budget is known to be kept."""
    VERIFY = "verify"
    """Ask the verifier about `Decision.pair`, then decide again with its opinion."""
    MISS = "miss"
    """Ask the model."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored question near the one asked. `key` names its text in `WrongHits`."""

    entry: str
    key: bytes
    text: Text
    similarity: float


@dataclass(frozen=True, slots=True)
class Asked:
    """The question. `least` is the caller's own threshold, which can only raise; `draw` in [0, 1) comes from the
    request's id, so that a decision can be replayed.
    """

    key: bytes
    text: Text
    draw: float
    least: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What a tenant's decisions go by."""

    chain: Chain
    threshold: Threshold
    wrong_hits: WrongHits
    sure: float = SURE
    """The probability from which a doubted answer is served."""
    audit_share: float = 0.05
    """Of would-be hits, the least: a threshold that is not known well asks for more."""
    compare_share: float = 0.30
    """Of misses, whose fresh answer is compared with the nearest entry's."""
    lesson_share: float = 0.0
    """Of the other misses, for the verifier alone: the threshold goes by those that were drawn for it."""
    shadow: bool = False
    """Decide and compare, serve nothing."""
    refinement: Refinement | None = None
    """What is known of single entries, beside the threshold."""
    staleness: Staleness | None = None
    """What is known of entries that nobody has needed for long; `now` is the number of questions so far."""
    now: int = 0
    trust: Trust | None = None
    """How far single entries may be served without a comparison."""

    def shift(self, entry: str) -> float:
        """What an entry's similarities count for more, or less."""
        own = self.refinement.shift(entry) if self.refinement is not None else 0.0
        return own + (self.staleness.shift(entry, self.now) if self.staleness is not None else 0.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of one candidate. `needed` is the similarity it had to have; `findings` begin with the refusal."""

    entry: str
    similarity: float
    needed: float
    reason: Reason
    findings: tuple[Finding, ...] = ()
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """An entry whose answer is to be compared with the fresh one, drawn with probability `share`.

    `pair` is there when the rules doubted it, `probability` when the verifier said something of it; `beside` when it is
    the second one of its request. `lesson`: it was not drawn with `share`, and only the verifier learns from it. `shift` is what
    the entry's similarity counted for more. `audit`: it would have been served.
    """

    entry: str
    similarity: float
    share: float
    pair: Pair | None
    probability: float | None = None
    beside: bool = False
    lesson: bool = False
    shift: float = 0.0
    audit: bool = False

    def label(self, right: bool) -> Label:
        """What the comparison says. A doubted pair that no verifier was asked about has yet to get its probability."""
        row = None if self.pair is None else row_of(self.pair)
        return Label(self.similarity + self.shift, right, self.share, row, self.probability, self.beside)


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome with its grounds. `judged` are the candidates in the order they were tried."""

    outcome: Outcome
    reason: Reason
    threshold: Threshold
    judged: tuple[Judged, ...]
    entry: str | None = None
    similarity: float = 0.0
    pair: Pair | None = None
    compare: tuple[Comparison, ...] = ()
    share: float = 0.0
    """The probability with which a would-be hit is compared in place of being served."""
    shadow: bool = False
    """It would have been `SERVE` or `AUDIT`, had the policy not been one that serves nothing."""


def decide(
    candidates: Sequence[Candidate], asked: Asked, policy: Policy, opinions: Mapping[str, Opinion] | None = None
) -> Decision:
    """The decision for what is asked; `opinions` are the verifier's so far, by entry."""
    nearest = sorted(candidates, key=lambda each: (-_rank(each.similarity), each.entry))[:MOST_CANDIDATES]
    judged: list[Judged] = []
    open_: list[tuple[Judged, Pair]] = []  # what no rule refused
    for candidate in nearest:
        verdict, found = _judge(candidate, asked, policy, (opinions or {}).get(candidate.entry))
        if found.reason in _VERIFIED and any(pair.doubts for _, pair in open_):
            found = replace(found, reason="not_asked", probability=None)
        judged.append(found)
        if verdict is None:
            continue
        pair = Pair(asked.text, candidate.text, found.similarity, verdict.doubts)
        if found.reason == "to_verify":
            return Decision(
                Outcome.VERIFY, found.reason, policy.threshold, tuple(judged), found.entry, found.similarity, pair
            )
        open_.append((found, pair))
        if found.reason in ("hit", "verified"):
            return _hit(found, pair, asked, policy, tuple(judged))
    reason: Reason = judged[0].reason if judged else "no_candidates"
    drawn = asked.draw < policy.compare_share
    lesson = not drawn and asked.draw < policy.compare_share + policy.lesson_share * (1 - policy.compare_share)
    compare = _comparisons(open_, policy, lesson=lesson) if drawn or lesson else ()
    return Decision(Outcome.MISS, reason, policy.threshold, tuple(judged), compare=compare)


def _judge(
    candidate: Candidate, asked: Asked, policy: Policy, opinion: Opinion | None
) -> tuple[Verdict | None, Judged]:
    """What is found of one candidate; the verdict only where no rule refused it."""
    similarity = candidate.similarity
    if not math.isfinite(similarity) or similarity > 1 + _ROUNDING:
        return None, Judged(candidate.entry, 0.0, policy.threshold.value, "not_a_similarity")
    similarity = min(similarity, 1.0)
    needed, below = _needed(candidate, asked, policy)
    if not (asked.text.whole and candidate.text.whole):
        return None, Judged(candidate.entry, similarity, needed, "too_long")
    if policy.wrong_hits.is_denied(asked.key, candidate.key):
        return None, Judged(candidate.entry, similarity, needed, "denied")
    verdict = policy.chain.judge(asked.text, candidate.text)
    if verdict.refusal is not None:
        findings = (verdict.refusal, *verdict.doubts)
        return None, Judged(candidate.entry, similarity, needed, "refused", findings)
    if similarity < needed:
        return verdict, Judged(candidate.entry, similarity, needed, below, verdict.doubts)
    if not verdict.doubts:
        return verdict, Judged(candidate.entry, similarity, needed, "hit")
    reason, probability = _opined(opinion, policy.sure)
    return verdict, Judged(candidate.entry, similarity, needed, reason, verdict.doubts, probability)


def _needed(candidate: Candidate, asked: Asked, policy: Policy) -> tuple[float, Reason]:
    """The highest of the thresholds, and what a similarity below it is called."""
    needed: tuple[float, Reason] = (policy.threshold.value - policy.shift(candidate.entry), "below_threshold")
    floor = policy.wrong_hits.floor(candidate.entry)
    if floor is not None and floor > needed[0]:
        needed = (floor, "below_entry_floor")
    if asked.least is not None and asked.least > needed[0]:
        needed = (asked.least, "below_request_threshold")
    return needed


def _opined(opinion: Opinion | None, sure: float) -> tuple[Reason, float | None]:
    if opinion is None:
        return "to_verify", None
    if opinion.probability is None or not 0 <= opinion.probability <= 1:  # NaN too
        return ("verifier_untrained" if opinion.why == "verifier_untrained" else "verifier_unavailable"), None
    return ("verified" if opinion.probability >= sure else "doubted"), opinion.probability


def _hit(found: Judged, pair: Pair, asked: Asked, policy: Policy, judged: tuple[Judged, ...]) -> Decision:
    share = max(policy.compare_share if policy.shadow else policy.audit_share, policy.threshold.audit)
    if policy.trust is not None and policy.trust.is_due(found.entry):
        share = 1.0
    drawn = asked.draw < share
    learn = pair if pair.doubts else None
    shift = policy.shift(found.entry)
    comparison = Comparison(
        *(found.entry, found.similarity, share, learn, found.probability), shift=shift, audit=not policy.shadow
    )
    compare = (comparison,) if drawn else ()
    outcome = Outcome.MISS if policy.shadow else Outcome.AUDIT if drawn else Outcome.SERVE
    return Decision(
        *(outcome, found.reason, policy.threshold, judged, found.entry, found.similarity, None, compare),
        share=share,
        shadow=policy.shadow,
    )


def _comparisons(open_: list[tuple[Judged, Pair]], policy: Policy, *, lesson: bool) -> tuple[Comparison, ...]:
    """The nearest clean candidate, and the nearest that a verifier can learn from; of a lesson only this one."""
    clean = next((each for each in open_ if not each[1].doubts and not lesson), None)
    doubted = next((each for each in open_ if each[1].doubts), None)
    found = []
    share = policy.compare_share or 1.0
    if clean is not None:
        shift = policy.shift(clean[0].entry)
        found.append(Comparison(clean[0].entry, clean[0].similarity, share, None, shift=shift))
    if doubted is not None:
        found.append(
            Comparison(
                *(doubted[0].entry, doubted[0].similarity, share, doubted[1], doubted[0].probability),
                beside=bool(found),
                lesson=lesson,
                shift=policy.shift(doubted[0].entry),
            )
        )
    return tuple(found)


def _rank(similarity: float) -> float:
    """Without a number last: a NaN in a sort puts the others in no order."""
    return similarity if math.isfinite(similarity) else -math.inf
