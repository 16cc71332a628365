"""Settings of the cache."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from streamway.config import ServiceSettings


class CacheSettings(ServiceSettings):
    """Settings with the prefix `STREAMWAY_CACHE_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_CACHE_")
    section: ClassVar[str] = "cache"

    node: str = Field(
        default="cache-0",
        pattern=r"[A-Za-z0-9_.-]{1,64}",
        description="Name of this process among the caches of a mesh; the id of its lease.",
    )
    host: str = Field(default="127.0.0.1", description="Address the gRPC server listens on.")
    port: int = Field(default=7002, ge=0, le=65535, description="Port of the gRPC server. 0: a free one.")
    advertise: str = Field(
        default="", description="Address, host:port, under which others reach this cache. Empty: where it listens."
    )
    operations_host: str = Field(
        default="127.0.0.1", description="Address of the operations port (/healthz, /readyz, /metrics)."
    )
    operations_port: int = Field(default=8002, ge=0, le=65535, description="The operations port. 0: a free one.")
    limit_bytes: int = Field(
        default=256 * 1024**2, ge=1024**2, description="Most bytes of all entries; the least recently used goes first."
    )
    tenant_limit_bytes: int = Field(
        default=128 * 1024**2,
        ge=1024**2,
        description="Most bytes of one tenant's entries, so that none crowds out the rest.",
    )
    answer_limit_bytes: int = Field(
        default=1024**2, ge=1024, le=1024**2, description="Largest answer that is kept, in bytes."
    )
    request_limit_bytes: int = Field(
        default=1024**2, ge=1024, description="Largest request that is looked up, in bytes; larger ones are bypassed."
    )
    ttl_s: float = Field(
        default=3600.0, gt=0, description="Seconds an answer is served when the store names none; ± 10 % at random."
    )
    most_ttl_s: float = Field(default=86400.0, gt=0, description="Most seconds a store may ask for.")
    sweep_interval_s: float = Field(default=10.0, gt=0, description="Seconds between sweeps of expired entries.")
    drain_grace_s: float = Field(default=2.0, ge=0, description="Seconds that running calls get at shutdown.")
