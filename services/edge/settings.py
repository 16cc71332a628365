"""Settings of the edge."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import ClassVar

from pydantic import Field, IPvAnyNetwork
from pydantic_settings import SettingsConfigDict

from services.edge.options.buffers import BufferSettings
from services.edge.options.connections import ConnectionSettings
from services.edge.options.pressure import PressureSettings
from services.edge.options.reach import ReachSettings
from services.edge.options.streams import StreamSettings


# The last one comes first where settings are listed.
class EdgeSettings(BufferSettings, StreamSettings, PressureSettings, ConnectionSettings, ReachSettings):
    """Settings with the prefix `STREAMWAY_EDGE_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_EDGE_")
    section: ClassVar[str] = "edge"

    hold_status_s: float = Field(
        default=2.0,
        ge=0,
        le=14,
        description="Seconds a stream's status line waits for the engine, so that its refusal is an HTTP status.",
    )
    drain_serve_s: float = Field(
        default=1.0,
        ge=0,
        le=60,
        description="Seconds after a stop signal in which HTTP requests that were already on their way are still served.",
    )
    drain_grace_s: float = Field(
        default=30.0, ge=0, le=3600, description="Seconds that live generations have to end when the process stops."
    )
    allowed_origins: list[str] = Field(
        default=[],
        description="Web origins besides the edge's own whose pages may use it, as scheme://host[:port].",
    )
    trusted_proxies: list[IPvAnyNetwork] = Field(
        default=[], description="Networks of proxies whose X-Forwarded-For names the client."
    )
    session_by_address: bool = Field(
        default=False,
        description="Take the client's address as session key where a request names none; off, since a NAT is one key.",
    )

    operators: list[str] = Field(
        default=[],
        description="Tenants whose callers may see the whole mesh in the console: all processes, streams and tenants. While"
        " nobody has credentials everybody on this machine may.",
    )
    failures_socket: Path | None = Field(
        default=None,
        description="Unix socket of the supervisor by which operators may kill and pause workers from the console, to see what"
        " happens; `streamway up` sets it. Unset: nobody may.",
    )
    trace_url: str = Field(
        default="",
        pattern=r"^(https?://\S*\{trace_id\}\S*)?$",
        max_length=1000,
        description="Where the console finds the trace of an answer: a URL with {trace_id} in it, "
        "http://127.0.0.1:16686/trace/{trace_id} for instance. Empty: it shows no link.",
    )

    @property
    def name(self) -> str:
        """In its lease."""
        return self.id or re.sub(r"[^A-Za-z0-9_.-]", "-", f"edge-{self.index}-{socket.gethostname()}")[:64]
