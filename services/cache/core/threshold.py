"""The similarity from which an answer may be served: configured, or found from labels so that a budget is kept.

Similarities are cosines, 1 for equal directions; higher is stricter everywhere. 0 is a value like any other.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal

from services.cache.core.allowance import Allowance
from services.cache.core.labels import SURE, Label

# Where nothing is configured. The bundled multilingual encoder gives unrelated questions up to 0.89.
DEFAULT: Final = 0.87
DEFAULT_MULTILINGUAL: Final = 0.92
# Where the pooled threshold starts: what few wrong answers lie above, before anything is known.
START: Final = 0.95
START_MULTILINGUAL: Final = 0.97
# No similarity reaches it.
CLOSED: Final = math.inf
GRID_STEP: Final = 0.005
_GRID_TOP: Final = 0.995

Source = Literal["configured", "default", "starting", "controlled", "closed"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """The value in force and why: `source` may be a metric label.

    `bound` is the upper bound of wrong answers per request at that value, None where nothing is known of it. `audit`: the
    share of would-be hits that are to be compared for the bound to stay known; a policy may ask for more.
    """

    value: float
    source: Source
    bound: float | None = None
    labels: int = 0
    audit: float = 0.0


def static(configured: float | None, *, multilingual: bool) -> Threshold:
    """The configured value; without one, the default of the encoder."""
    if configured is not None:
        return Threshold(configured, "configured")
    return Threshold(DEFAULT_MULTILINGUAL if multilingual else DEFAULT, "default")


@dataclass(frozen=True, slots=True)
class Budget:
    """What the pooled threshold keeps to, and how."""

    wrong: float = 0.01
    """Most wrong answers per request that reaches the semantic level."""
    start: float = START
    """The lowest threshold until the bound is known."""
    every: int = 50
    """Requests between two searches for the threshold."""
    window: int = 3_000
    """Labels that count: the last ones, so that drift shows."""
    floor: float = 0.60
    """Lowest threshold."""
    confidence: float = 0.90
    """Of the bound, one-sided."""
    starting_audit: float = 0.75
    """Share of would-be hits that are compared until the bound is known: what is served meanwhile is served on trust."""


class PooledThreshold:
    """One threshold for a partition, found again every `Budget.every` requests from labels of all its entries.

    The share of wrong labels at or above a threshold, each weighted by one over the probability it was drawn with, is
    the rate of wrong answers that this threshold would have given. Served is from the lowest grid value whose upper
    bound is within the budget, seen from the top. It rises at once, with the label that says so, and falls by one step a
    search: a value that looks good for once is audited before the next one is tried.

    All that is for questions that come as those before them did. How many of the would-be hits are compared follows from the
    `allowance`, whose account holds however they come.

    Until the bound of the start is known, most would-be hits are compared in place of being served, and the first one that
    was wrong takes all that is not more similar out of service.
    """

    def __init__(self, budget: Budget | None = None, sure: float = SURE) -> None:
        self._budget = budget or Budget()
        self._sure = sure
        self._labels: deque[Label] = deque(maxlen=self._budget.window)
        self._requests = 0
        self.allowance = Allowance(self._budget.wrong)
        self._threshold = self._starting(max(self._budget.start, self._budget.floor))

    @property
    def threshold(self) -> Threshold:
        """What is in force."""
        return replace(self._threshold, audit=max(self._threshold.audit, self.allowance.audit))

    def request(self) -> None:
        """Counts a request that reached the semantic level."""
        self._requests += 1
        self.allowance.request()
        if self._requests % self._budget.every == 0:
            self._threshold = self._find()

    @property
    def labels(self) -> tuple[Label, ...]:
        """Those that count, the oldest first: what a verifier learns from."""
        return tuple(self._labels)

    @property
    def requests(self) -> int:
        """Those counted by `request`."""
        return self._requests

    def restore(self, value: float, source: Source, bound: float | None, requests: int, labels: list[Label]) -> None:
        """Goes on where another one was. A budget that is stricter now shows at the next search."""
        self._labels.clear()
        self._labels.extend(labels)
        self._requests = requests
        audit = 0.0 if source == "controlled" else self._budget.starting_audit
        self._threshold = Threshold(value, source, bound, len(self._labels), audit)

    def add(self, label: Label) -> None:
        """Takes a comparison."""
        if not 0 < label.share <= 1 or not math.isfinite(label.similarity):
            raise ValueError(f"a label of similarity {label.similarity}, drawn with probability {label.share}")
        self._labels.append(label)
        if not label.right and label.is_open(self._sure) and label.similarity >= self._threshold.value:
            found = self._find()
            if found.value > self._threshold.value:
                self._threshold = found

    def curve(self) -> list[tuple[float, float, float]]:
        """For each grid value from the top: (threshold, share of wrong answers, its upper bound). Empty without labels."""
        everything = _Place()
        for label in self._labels:
            if not label.beside:
                everything.take(label)
        total, confidence = everything.weight, self._budget.confidence
        if not total:
            return []
        places = [_Place() for _ in range(round((_GRID_TOP - self._budget.floor) / GRID_STEP) + 1)]
        for label in self._labels:
            if label.similarity >= self._budget.floor and label.is_open(self._sure):
                place = math.ceil((_GRID_TOP - label.similarity) / GRID_STEP - _EPSILON)
                if place < len(places):
                    places[max(place, 0)].take(label)
        found, above = [], _Place()
        for at, step in enumerate(places):
            above.join(step)
            bound = (
                weighted_bound(above.wrong, above.wrong_squares, above.unseen or everything.unseen, confidence) / total
            )
            found.append((round(_GRID_TOP - at * GRID_STEP, 6), above.wrong / total, min(bound, 1.0)))
        return found

    def _find(self) -> Threshold:
        budget, count = self._budget, len(self._labels)
        curve = self.curve()
        start = max(budget.start, budget.floor)
        value, bound = CLOSED, None
        lowest = min(self._threshold.value, _GRID_TOP + GRID_STEP) - _EPSILON
        if self._threshold.source != "starting":
            lowest -= GRID_STEP
        for threshold, _, upper in curve:
            if upper > budget.wrong or (threshold < lowest and value != CLOSED):
                break
            value, bound = threshold, upper
        if value != CLOSED:
            return Threshold(value, "controlled", bound, count)
        # The bound says nothing yet, or nothing good.
        for threshold, risk, _ in curve:
            if risk > 0 or threshold < start:
                break
            value = threshold
        return self._starting(start if not curve else value)

    def _starting(self, value: float) -> Threshold:
        """Nothing is known to be good: what was never wrong is tried, and mostly compared."""
        source: Source = "closed" if value == CLOSED else "starting"
        return Threshold(value, source, None, len(self._labels), self._budget.starting_audit)


@dataclass(slots=True)
class _Place:
    """Labels of one step of the grid, or of all down to it: how many, the sums of their weights and of the squares of these."""

    count: int = 0
    weight: float = 0.0
    squares: float = 0.0
    wrong: float = 0.0
    wrong_squares: float = 0.0

    def take(self, label: Label) -> None:
        weight = label.weight
        self.count += 1
        self.weight += weight
        self.squares += weight**2
        if not label.right:
            self.wrong += weight
            self.wrong_squares += weight**2

    def join(self, other: _Place) -> None:
        self.count += other.count
        self.weight += other.weight
        self.squares += other.squares
        self.wrong += other.wrong
        self.wrong_squares += other.wrong_squares

    @property
    def unseen(self) -> float:
        """What a wrong answer would weigh that nobody has seen: between the mean weight, with which the bound would be too low
        where weights differ, and the mean weight of a request, with which it would be too high. 0 without labels.
        """
        return (self.weight / self.count + self.squares / self.weight) / 2 if self.count else 0.0


def weighted_bound(wrong: float, squares: float, unseen: float, confidence: float) -> float:
    """Upper bound of a sum of weights of rare events, of which weights of sum `wrong` and sum of squares `squares` were seen.

    By a gamma distribution with the mean and variance of what was seen and of one event more, of weight `unseen` (M. P. Fay,
    E. J. Feuer, Statistics in Medicine 16, 1997); for equal weights the exact bound of a Poisson count (Garwood, 1936).
    """
    mean, variance = wrong + unseen, squares + unseen**2
    return variance / mean * gamma_quantile(mean**2 / variance, confidence)


def gamma_quantile(shape: float, confidence: float) -> float:
    """Of a gamma distribution of scale 1, within 1 % for shapes from 1 on (E. B. Wilson, M. M. Hilferty, PNAS 17, 1931)."""
    z = NormalDist().inv_cdf(confidence)
    return float(shape * (1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3)


# A similarity that lies on the grid belongs to its own place, whatever its last bit.
_EPSILON: Final = 1e-6
