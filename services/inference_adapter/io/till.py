"""What answers cost: written into their usage at the end, and added up."""

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

    def take(self, request: common_pb2.GenerationRequest, usage: common_pb2.Usage) -> None:
        """An engine has answered; nothing happens where its model has no price. Only models with one become labels."""
        cost = price(usage, request.model, self._models.routing.prices)
        if cost is not None:
            self._metrics.cost.labels(request.model, _TIERS.get(request.entitlement.tier, "none")).inc(cost)
