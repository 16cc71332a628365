"""How much may wait for a client."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from services.edge.core.buffer_share import ShareRules
from streamway.config import ServiceSettings


class BufferSettings(ServiceSettings):
    """What waits for clients that read slowly, and for how long."""

    stream_memory_bytes: int = Field(
        default=512 * 1024**2,
        ge=16 * 1024**2,
        le=1024**4,
        description="Bytes this process sets aside for streams: output buffers have a part of it, requests that no router has yet"
        " the rest.",
    )
    buffer_share: tuple[float, float, float] = Field(
        default=(0.3, 0.025, 0.7),
        description="The part for output buffers, 0 … 1: so much, so much more for each token a second of the mean stream, and so"
        " much at most.",
    )
    slow_bytes: int = Field(
        default=256 * 1024,
        ge=4096,
        le=64 * 1024**2,
        description="Most bytes that may wait for a slow client, and its part of the output buffers where that is less; above it"
        " what has a channel is paused and read from it later.",
    )
    least_slow_bytes: int = Field(
        default=4096,
        ge=1024,
        le=64 * 1024**2,
        description="The least that this part is, however many streams there are.",
    )
    slow_client_s: float = Field(
        default=10.0,
        ge=0.1,
        le=600,
        description="Seconds in which a paused client must take at least something, or its connection is closed.",
    )
    slow_s: float = Field(
        default=2.0,
        ge=0.1,
        le=60,
        description="Seconds a client of generations without a channel may stay above slow_bytes before it is closed.",
    )
    buffer_bytes: int = Field(
        default=4 * 1024**2,
        ge=65536,
        le=256 * 1024**2,
        description="Bytes of generations without a channel waiting for one client at which it is closed at once.",
    )
    socket_send_bytes: int = Field(
        default=256 * 1024,
        ge=0,
        le=16 * 1024**2,
        description="Send buffer the kernel keeps for each client, in bytes; 0 lets it grow as the kernel likes.",
    )

    @model_validator(mode="after")
    def _parts_of_the_memory(self) -> Self:
        least, per_token, most = self.buffer_share
        if not (0 < least <= most < 1 and per_token >= 0):
            raise ValueError("buffer_share must be 0 < first <= third < 1, and its second not below 0")
        return self

    @property
    def share_rules(self) -> ShareRules:
        """How the memory for streams is shared."""
        return ShareRules(self.stream_memory_bytes, self.slow_bytes, self.least_slow_bytes, *self.buffer_share)
