"""The similarity from which an answer may be served: configured, or found from labels so that a budget is kept.

Similarities are cosines, 1 for equal directions; higher is stricter everywhere. 0 is a value like any other.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

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

    `bound` is the upper bound of wrong answers per request at that value, None where nothing is known of it.
    """

    value: float
    source: Source
    bound: float | None = None
    labels: int = 0


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
    """The threshold until there are enough labels."""
    least_labels: int = 60
    every: int = 50
    """Requests between two searches for the threshold."""
    window: int = 3_000
    """Labels that count: the last ones, so that drift shows."""
    floor: float = 0.60
    """Lowest threshold."""
    z: float = 1.28
    """Of the Wilson bound: one-sided 90 %."""


class PooledThreshold:
    """One threshold for a partition, found again every `Budget.every` requests from labels of all its entries.

    The share of wrong labels at or above a threshold, each weighted by one over the probability it was drawn with, is
    the rate of wrong answers that this threshold would have given. Served is from the lowest grid value whose upper
    bound is within the budget, seen from the top. It rises at once and falls by one step a search: a value that looks
    good for once is audited before the next one is tried.
    """

    def __init__(self, budget: Budget | None = None, sure: float = SURE) -> None:
        self._budget = budget or Budget()
        self._sure = sure
        self._labels: deque[Label] = deque(maxlen=self._budget.window)
        self._requests = 0
        self._threshold = Threshold(max(self._budget.start, self._budget.floor), "starting")

    @property
    def threshold(self) -> Threshold:
        """What is in force."""
        return self._threshold

    def request(self) -> None:
        """Counts a request that reached the semantic level."""
        self._requests += 1
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
        self._threshold = Threshold(value, source, bound, len(self._labels))

    def add(self, label: Label) -> None:
        """Takes a comparison."""
        if not 0 < label.share <= 1 or not math.isfinite(label.similarity):
            raise ValueError(f"a label of similarity {label.similarity}, drawn with probability {label.share}")
        self._labels.append(label)

    def curve(self) -> list[tuple[float, float, float]]:
        """For each grid value from the top: (threshold, share of wrong answers, its upper bound). Empty without labels."""
        total, effective = self._size()
        if not total:
            return []
        steps = round((_GRID_TOP - self._budget.floor) / GRID_STEP)
        wrong = [0.0] * (steps + 1)  # by grid place from the top
        for label in self._labels:
            if not label.right and label.similarity >= self._budget.floor and label.is_open(self._sure):
                place = math.ceil((_GRID_TOP - label.similarity) / GRID_STEP - _EPSILON)
                if place <= steps:
                    wrong[max(place, 0)] += label.weight
        found, risk = [], 0.0
        for place, weight in enumerate(wrong):
            risk += weight / total
            found.append((round(_GRID_TOP - place * GRID_STEP, 6), risk, wilson(risk, effective, self._budget.z)))
        return found

    def _find(self) -> Threshold:
        budget, count = self._budget, len(self._labels)
        curve = self.curve()
        # Labels of small probability weigh much and count little: with few of them not even a clean record is enough.
        if count < budget.least_labels or wilson(0.0, self._size()[1], budget.z) > budget.wrong:
            return self._cautious(curve)
        value, bound = CLOSED, None
        lowest = min(self._threshold.value, _GRID_TOP + GRID_STEP) - GRID_STEP - _EPSILON
        for threshold, _, upper in curve:
            if upper > budget.wrong or (threshold < lowest and value != CLOSED):
                break
            value, bound = threshold, upper
        if value == CLOSED:
            return Threshold(CLOSED, "closed", None, count)
        return Threshold(value, "controlled", bound, count)

    def _cautious(self, curve: list[tuple[float, float, float]]) -> Threshold:
        """Before the bound says anything: the start, or above it what has been seen to be wrong too often."""
        lowest = max(self._budget.start, self._budget.floor)
        value = lowest if not curve else CLOSED
        for threshold, risk, _ in curve:
            if risk > self._budget.wrong:
                break
            value = max(threshold, lowest)
            if threshold <= lowest:
                break
        return Threshold(value, "closed" if value == CLOSED else "starting", None, len(self._labels))

    def _size(self) -> tuple[float, float]:
        """Requests that the labels stand for, and how many labels of equal weight would say as much (L. Kish, 1965)."""
        weights = [label.weight for label in self._labels if not label.beside]
        total = sum(weights)
        return total, total**2 / sum(weight**2 for weight in weights) if weights else 0.0


def wilson(share: float, count: float, z: float) -> float:
    """Upper end of Wilson's interval for a share among `count` observations (E. B. Wilson, JASA 22, 1927)."""
    if count <= 0:
        return 1.0
    share = min(max(share, 0.0), 1.0)
    middle = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return min((middle + spread) / (1 + z * z / count), 1.0)


# A similarity that lies on the grid belongs to its own place, whatever its last bit.
_EPSILON: Final = 1e-6
