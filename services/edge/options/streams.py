"""How long streams wait, and how large they may be."""

from __future__ import annotations

from pydantic import Field

from streamway.config import ServiceSettings


class StreamSettings(ServiceSettings):
    """Waits and bounds of one stream, one connection, one message."""

    resume_grace_s: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Seconds a lost connection can be restored; as the workers' setting of the same name.",
    )
    takeover_wait_s: float = Field(
        default=45.0, ge=1, le=600, description="Seconds a stream waits for another worker when its own is gone."
    )
    store_wait_s: float = Field(
        default=2.0, ge=0.1, le=60, description="Seconds a resume waits for Valkey before it does without."
    )
    poll_wait_s: float = Field(
        default=15.0, ge=0, le=60, description="Seconds a long poll waits for the next event unless it says how long."
    )
    response_keep_s: float = Field(
        default=3600.0,
        ge=60,
        le=30 * 86400,
        description="Seconds a stored response of the Responses API can be retrieved and followed, from its last change on.",
    )
    keepalive_s: float = Field(
        default=75.0, ge=1, le=3600, description="Seconds an HTTP connection may idle between two requests."
    )
    max_generations: int = Field(
        default=10_000, ge=1, le=100_000, description="Most live generations of one WebSocket connection."
    )
    max_frame_bytes: int | None = Field(
        default=None,
        ge=1024,
        le=1024**3,
        description="Largest WebSocket message, in bytes; unset: STREAMWAY_MAX_MESSAGE_BYTES.",
    )
