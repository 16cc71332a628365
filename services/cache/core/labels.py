"""What comparisons of stored with fresh answers said: the threshold is found and the verifier taught from the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

# The probability from which a doubted answer is served.
SURE: Final = 0.9


class Row(NamedTuple):
    """What a verifier sees of a pair: its `features`, and the words that differ."""

    numbers: tuple[float, ...]
    words: bytes = b""


@dataclass(slots=True)
class Label:
    """One comparison. `right`: the fresh answer said the same; `share` in (0, 1]: the probability it was drawn with.

    `row`: of a pair that the rules doubted, None for a clean one. `probability` is the verifier's for
    that row, from a model that has not learned from it. `beside`: the same request has another label already.
    """

    similarity: float
    right: bool
    share: float
    row: Row | None = None
    probability: float | None = None
    beside: bool = False

    @property
    def weight(self) -> float:
        """How many requests it stands for."""
        return 1 / self.share

    def is_open(self, sure: float = SURE) -> bool:
        """A threshold low enough would serve it: it is clean, or the verifier is sure."""
        return self.row is None or (self.probability is not None and self.probability >= sure)
