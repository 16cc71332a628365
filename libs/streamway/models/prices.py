"""What tokens of a model cost: the one place where usage becomes money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streamway.v1 import common_pb2

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens each, in money of the operator's choice. `cached`: prompt tokens that the engine had in its KV."""

    input: float
    output: float
    cached: float

    def of(self, usage: common_pb2.Usage) -> float:
        """What these tokens cost."""
        cached = min(usage.cached_prompt_tokens, usage.prompt_tokens)
        fresh = usage.prompt_tokens - cached
        return (fresh * self.input + cached * self.cached + usage.completion_tokens * self.output) / _MILLION


def price(usage: common_pb2.Usage, model: str, prices: Mapping[str, Price]) -> float | None:
    """Writes into `usage` what it cost, and returns that; None, and nothing written, where the model has no price."""
    row = prices.get(model)
    if row is None:
        return None
    usage.cost = row.of(usage)
    return usage.cost
