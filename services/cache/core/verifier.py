"""Whether a doubted answer is right after all: the port, and the model that learns it from a deployment's own audits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from services.cache.core.features import BUCKETS, NAMES, differing, features
from services.cache.core.labels import Label, Row
from services.cache.core.vetoes.finding import Finding
from services.cache.core.vetoes.text import Text

Vector = npt.NDArray[np.float64]

# Of these, so many of either kind. With fewer the model is worse than none: see docs/cache-eval.md.
LEAST_LABELS: Final = 200
LEAST_OF_EACH: Final = 40
MOST_LABELS: Final = 3_000
# The strength of the prior that a feature says nothing, in labels.
_RIDGE: Final = 1.0
_MOST_STEPS: Final = 25
_FOLDS: Final = 5
_CONVERGED: Final = 1e-6
# exp() of more is 0 or 1 to the last bit.
_MOST_LOGIT: Final = 35.0


@dataclass(frozen=True, slots=True)
class Pair:
    """What a verifier is asked about."""

    asked: Text
    stored: Text
    similarity: float
    doubts: tuple[Finding, ...]


def row_of(pair: Pair) -> Row:
    """What a verifier sees of it."""
    numbers = features(pair.asked, pair.stored, pair.similarity, pair.doubts)
    return Row(numbers, differing(pair.asked, pair.stored))


@dataclass(frozen=True, slots=True)
class Opinion:
    """What became of asking: a probability, or why there is none."""

    probability: float | None
    why: Literal["verified", "verifier_untrained", "verifier_unavailable"]


UNAVAILABLE: Final = Opinion(None, "verifier_unavailable")
UNTRAINED: Final = Opinion(None, "verifier_untrained")


class Verifier(Protocol):
    """Judges what the rules doubt. May be a model, another process, anything: whoever asks bounds the time."""

    async def probability(self, pair: Pair) -> float | None:
        """That the stored answer is right for what is asked; None while it knows too little.

        Whatever it raises, and no answer in time, means `UNAVAILABLE`, and a miss.
        """


class FeatureVerifier:
    """Logistic regression over `features` and over which words differ, untrained at first: everything sent to it is a miss
    until it has seen enough. A word that nobody has compared yet says nothing.
    """

    def __init__(self, least: int = LEAST_LABELS, least_of_each: int = LEAST_OF_EACH) -> None:
        self._least = least
        self._least_of_each = least_of_each
        self._weights: Vector | None = None
        self._mean: Vector = np.zeros(len(NAMES))
        self._scale: Vector = np.ones(len(NAMES))

    @property
    def trained(self) -> bool:
        """It has an opinion."""
        return self._weights is not None

    def fit(self, labels: Sequence[Label]) -> bool:
        """Learns anew from the doubted ones of the last `MOST_LABELS` labels; False, and unchanged, when they are too few.

        Sets the `probability` of each as a model sees it that has not learned from it, so that nobody judges the
        verifier by what it knows by heart. Takes half a second for 3,000: not for an event loop.
        """
        known = [(label, label.row) for label in labels if label.row is not None][-MOST_LABELS:]
        doubted = [label for label, _ in known]
        right = sum(label.right for label in doubted)
        if len(doubted) < self._least or min(right, len(doubted) - right) < self._least_of_each:
            return False
        numbers = np.array([row.numbers for _, row in known], dtype=np.float64)
        self._mean = numbers.mean(axis=0)
        self._scale = np.where(numbers.std(axis=0) > 0, numbers.std(axis=0), 1.0)
        design = self._design([row for _, row in known])
        target = np.array([label.right for label in doubted], dtype=np.float64)
        importance = np.array([label.weight for label in doubted])
        # The size of the sample stays what it is: the prior is measured in labels.
        importance *= len(doubted) / importance.sum()
        self._weights = _newton(design, target, importance, np.zeros(design.shape[1]))
        fold = np.arange(len(doubted)) % _FOLDS
        for part in range(_FOLDS):
            others, these = fold != part, np.flatnonzero(fold == part)
            weights = _newton(design[others], target[others], importance[others], self._weights)
            chance = _logistic(design[these] @ weights)
            for place, each in zip(these, chance, strict=True):
                doubted[place].probability = float(each)
        return True

    def learned(self) -> tuple[list[float], list[float], list[float]] | None:
        """Weights, mean and scale, for `restore`; None while untrained."""
        if self._weights is None:
            return None
        return self._weights.tolist(), self._mean.tolist(), self._scale.tolist()

    def restore(self, weights: list[float], mean: list[float], scale: list[float]) -> None:
        """Becomes what another one was. Raises ValueError for other features than these."""
        if (len(weights), len(mean), len(scale)) != (1 + len(NAMES) + BUCKETS, len(NAMES), len(NAMES)):
            raise ValueError(f"a verifier of {len(mean)} features")
        self._weights, self._mean, self._scale = np.array(weights), np.array(mean), np.array(scale)

    def estimate(self, pair: Pair) -> float | None:
        """The probability that the stored answer is right; None while untrained."""
        return None if self._weights is None else self.estimate_of(row_of(pair))

    def estimate_of(self, row: Row) -> float | None:
        """The same from what it sees."""
        if self._weights is None:
            return None
        return float(_logistic(self._design([row]) @ self._weights)[0])

    async def probability(self, pair: Pair) -> float | None:
        """`estimate`, as the port has it."""
        return self.estimate(pair)

    def _design(self, rows: Sequence[Row]) -> Vector:
        """Standardised features behind a constant, and a column for each bucket of words, of which rare ones weigh little."""
        words = np.zeros((len(rows), BUCKETS))
        for at, row in enumerate(rows):
            words[at, list(row.words)] = 1.0
        scaled = (np.array([row.numbers for row in rows]) - self._mean) / self._scale
        return np.hstack([np.ones((len(rows), 1)), scaled, words])


def _newton(design: Vector, target: Vector, importance: Vector, begin: Vector) -> Vector:
    """Ridge-penalised logistic regression by Newton's method; the constant is not penalised."""
    weights = begin.copy()
    penalty = np.full(design.shape[1], _RIDGE)
    penalty[0] = 0.0
    for _ in range(_MOST_STEPS):
        chance = _logistic(design @ weights)
        gradient = design.T @ (importance * (target - chance)) - penalty * weights
        curvature = (design.T * (importance * chance * (1 - chance))) @ design + np.diag(penalty + _CONVERGED)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < _CONVERGED:
            break
    return weights


def _logistic(logits: Vector) -> Vector:
    chance: Vector = 1.0 / (1.0 + np.exp(-np.clip(logits, -_MOST_LOGIT, _MOST_LOGIT)))
    return chance
