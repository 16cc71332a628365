"""What the semantic level did lately at one tenant: its threshold over its questions, and near questions that were refused."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from services.cache.core.decide import Decision
from services.cache.core.threshold import CLOSED, Threshold

MOST_POINTS: Final = 200
MOST_REFUSED: Final = 20
# The longest part of a question that is shown.
_MOST_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Point:
    """The threshold after so many questions; None where none is served."""

    question: int
    threshold: float | None
    bound: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A near question that was not taken for the same: by which rule, and what it read in both."""

    question: str
    near: str
    similarity: float
    rule: str
    asked: str
    stored: str


class History:
    """Bounded: of more points than `MOST_POINTS` every other one stays, so that the curve keeps its beginning."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.refused: deque[Refused] = deque(maxlen=MOST_REFUSED)
        self._questions = 0

    def decided(self, question: str, decision: Decision, texts: dict[str, str], threshold: Threshold) -> None:
        """A question has been decided; `texts` has the questions of the candidates, by entry."""
        self._questions += 1
        value = None if threshold.value == CLOSED else threshold.value
        last = self.points[-1] if self.points else None
        if last is None or (last.threshold, last.bound, last.source) != (value, threshold.bound, threshold.source):
            self.points.append(Point(self._questions, value, threshold.bound, threshold.source))
            if len(self.points) > MOST_POINTS:
                self.points = [*self.points[:-1:2], self.points[-1]]
        for judged in decision.judged:
            if judged.reason == "refused" and judged.similarity >= threshold.value:
                finding = judged.findings[0]
                near = texts.get(judged.entry, "")
                self.refused.append(
                    Refused(
                        question[:_MOST_CHARS],
                        near[:_MOST_CHARS],
                        judged.similarity,
                        finding.rule,
                        finding.asked,
                        finding.stored,
                    )
                )
                break  # the nearest of them says enough
