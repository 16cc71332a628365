"""How long connections live."""

from __future__ import annotations

from pydantic import Field

from services.edge.core.connection_life import LifeRules
from streamway.config import ServiceSettings


class ConnectionSettings(ServiceSettings):
    """When a client counts as dead, and when its connection has lived long enough."""

    heartbeat_s: float = Field(
        default=15.0, ge=0.2, le=60, description="Longest seconds between two heartbeats on a WebSocket or SSE stream."
    )
    missed_heartbeats: int = Field(
        default=3,
        ge=1,
        le=20,
        description="Heartbeats in a row without any byte from a WebSocket client until it counts as dead.",
    )
    heartbeat_answer_s: float = Field(
        default=0.5,
        ge=0.01,
        le=60,
        description="Seconds a WebSocket client has to answer the last of these heartbeats.",
    )
    silent_s: float = Field(
        default=90.0,
        ge=1,
        le=86_400,
        description="Seconds without a byte either way after which a connection is closed; heartbeats count, so only dead peers "
        "are. Linux also closes it when what was sent is not acknowledged, or not taken, for so long.",
    )
    connection_requests: int = Field(
        default=10_000,
        ge=0,
        description="Requests that one connection carries; when one ends after that, it is drained. 0: any number.",
    )
    connection_growth_bytes_per_s: float = Field(
        default=800_000.0,
        ge=0,
        description="Bytes a second by which what is kept for one WebSocket may not grow in so many samples as "
        "connection_growth_samples, or it is drained. 0: it may.",
    )
    connection_growth_samples: int = Field(
        default=3, ge=1, le=1000, description="Samples in a row, one each review_s, after which growth counts."
    )
    connection_drain_s: float = Field(
        default=5.0,
        ge=0,
        le=60,
        description="Seconds from `going_away` on a WebSocket that is drained to its end; what has a channel goes on elsewhere.",
    )
    review_s: float = Field(
        default=5.0,
        ge=0.1,
        le=60,
        description="Seconds between two samples of connections, buffers and first-token times.",
    )

    @property
    def life_rules(self) -> LifeRules:
        """When one connection has lived long enough."""
        return LifeRules(self.connection_requests, self.connection_growth_bytes_per_s, self.connection_growth_samples)
