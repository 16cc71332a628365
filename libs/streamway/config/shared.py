"""Settings that every service shares."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict

from streamway.config.baggage import KEY, MOST_KEYS
from streamway.config.base import ServiceSettings


class SharedSettings(ServiceSettings):
    """Settings with the prefix `STREAMWAY_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_")
    section: ClassVar[str] = "shared"

    valkey_url: SecretStr = Field(
        default=SecretStr("redis://127.0.0.1:6379/0"),
        description="Where Valkey or Redis listens: redis://host:port/db, rediss://… or unix:///path. May hold a password.",
    )
    mesh_token: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Secret that services present to one another. Required when anything listens beyond loopback.",
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="YAML file with the hash and tenant of each API key, beside the keys of the tenants. Without any key or "
        "JWT: one anonymous tenant, on loopback only.",
    )
    tenants_file: Path | None = Field(
        default=None,
        description="YAML file with what the section `tenancy` of streamway.yaml would hold; see docs/tenants.md.",
    )
    tenants_poll_s: float = Field(
        default=0.5,
        ge=0.05,
        le=60,
        description="Seconds between two looks whether tenants, keys or JWT keys have changed; a change counts at once.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log lines to write."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="One JSON object a line, or text for people."
    )
    max_message_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=64 * 1024,
        le=1024**3,
        description="Largest gRPC message and request body, in bytes; the same on every hop.",
    )
    gather_late_ms: float = Field(
        default=10.0,
        ge=0.0,
        le=100.0,
        description="Most milliseconds that commands and answers to another service wait to go with others, while this process"
        " is busy; not at all while it has little to do. 0: they never wait.",
    )
    traces: bool = Field(
        default=False,
        description="Record OpenTelemetry spans and export them by OTLP to the address in OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    traces_ratio: float = Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        description="Share of the traces that begin in the mesh to be recorded; where a client sends a traceparent, its own "
        "decision holds.",
    )
    baggage_keys: tuple[str, ...] = Field(
        default=(),
        max_length=MOST_KEYS,
        description="Keys of a client's W3C `baggage` that go with a request to its worker and engine; all others are dropped."
        " At most 8.",
    )
    recent_hops: int = Field(
        default=2000,
        ge=0,
        le=1_000_000,
        description="Rows about single generations that each process keeps for `streamway trace`, about 1 kB each; the oldest "
        "go first.",
    )

    @field_validator("baggage_keys")
    @classmethod
    def _keys_are_tokens(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if not KEY.fullmatch(key):
                raise ValueError(f"{key!r} is no key of W3C baggage: 1 to 64 of letters, digits and !#$%&'*+-.^_`|~")
        return keys
