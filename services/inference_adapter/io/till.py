"""What answers took and cost: the cost is written into their usage at the end, and all of it added up."""

from __future__ import annotations

from typing import Final

from services.inference_adapter.metrics import AdapterMetrics
from streamway.models.prices import price
from streamway.models.watching import ModelsWatch
from streamway.v1 import common_pb2

_TIERS: Final = {common_pb2.TIER_GOLD: "gold", common_pb2.TIER_SILVER: "silver", common_pb2.TIER_BRONZE: "bronze"}


class Till:
    """Takes the prices that count when an answer ends."""

    def __init__(self, models: ModelsWatch, metrics: AdapterMetrics) -> None:
        self._models = models
        self._metrics = metrics
        self._prompt, self._cached, self._completion = map(metrics.counted.labels, ("prompt", "cached", "completion"))

    def take(self, request: common_pb2.GenerationRequest, usage: common_pb2.Usage) -> None:
        """An engine has answered. Only models with one become labels."""
        self._prompt.inc(usage.prompt_tokens)
        self._cached.inc(usage.cached_prompt_tokens)
        self._completion.inc(usage.completion_tokens)
        cost = price(usage, request.model, self._models.routing.prices)
        if cost is not None:
            self._metrics.cost.labels(request.model, _TIERS.get(request.entitlement.tier, "none")).inc(cost)
