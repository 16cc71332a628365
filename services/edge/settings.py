"""Settings of the edge."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, IPvAnyNetwork, model_validator
from pydantic_settings import SettingsConfigDict

from services.edge.core.buffer_share import ShareRules
from services.edge.core.connection_life import LifeRules
from services.edge.core.pressure import PressureRules
from streamway.config import ServiceSettings


class EdgeSettings(ServiceSettings):
    """Settings with the prefix `STREAMWAY_EDGE_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_EDGE_")
    section: ClassVar[str] = "edge"

    host: str = Field(default="127.0.0.1", min_length=1, description="Address that clients connect to.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port that clients connect to; 0 takes a free one.")
    reuse_port: bool = Field(
        default=True, description="Let several edge processes share the port; the kernel spreads connections over them."
    )
    listen_fd: int | None = Field(
        default=None,
        ge=3,
        description="Descriptor of a listening TCP socket this process was started with; host and port are not bound then. "
        "Whoever holds it keeps connections waiting while this process is replaced.",
    )
    counts_fd: int | None = Field(
        default=None,
        ge=3,
        description="Descriptor of a file in which the edges on one listening socket tell each other how many connections they "
        "have, so that each has as many. Eight bytes for each edge.",
    )
    counts_slot: int = Field(default=0, ge=0, description="Which eight bytes of that file are this process's, from 0.")
    backlog: int = Field(
        default=4096, ge=1, le=65535, description="Connections the kernel holds until this process accepts them."
    )
    id: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9_.-]{0,64}$",
        description="Name of this edge in its lease; unique in the mesh. Empty: edge, index and the host's name.",
    )
    index: int = Field(default=0, ge=0, le=999, description="Number of this process among the edges of one machine.")
    operations_host: str = Field(
        default="127.0.0.1", min_length=1, description="Address of /healthz, /readyz and /metrics."
    )
    operations_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of /healthz, /readyz and /metrics; unset: 9100 + index; 0 takes a free one.",
    )
    routers: list[str] = Field(
        default=[], description="Routers as host:port. Empty: those that hold a lease in Valkey, looked up each second."
    )
    router_wait_s: float = Field(
        default=10.0, ge=0, le=60, description="Seconds a new generation waits for a router when none is reachable."
    )
    router_answer_s: float = Field(
        default=10.0, ge=0.5, le=60, description="Seconds a router may take to answer before another one is asked."
    )
    reattach_s: float = Field(
        default=1.0,
        ge=0,
        le=60,
        description="Seconds a broken stream to a worker is tried again before it counts as lost.",
    )
    refused_s: float = Field(
        default=0.2,
        gt=0,
        le=60,
        description="Seconds for which a worker refuses connections after which its broken stream counts as lost, however much "
        "of reattach_s is left: nothing listens there any more.",
    )
    silence_s: float = Field(
        default=6.0,
        gt=0,
        le=600,
        description="Seconds without any sign of a worker that is read from after which its stream is torn down; three of the "
        "workers' attach_heartbeat_s.",
    )
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
    pressure_requests_per_s: float = Field(
        default=0.0,
        ge=0,
        description="Requests a second this process is made for. Over 1.5 × so many (pressure_overload) new WebSockets are told "
        "to use server-sent events or long polls, and bulk work waits. 0: not watched.",
    )
    pressure_overload: float = Field(
        default=1.5, ge=1, le=100, description="How many times that is too much when it lasts for pressure_overload_s."
    )
    pressure_overload_s: float = Field(
        default=5.0, ge=1, le=600, description="Seconds over, or below, until that begins, or ends."
    )
    pressure_first_token_ms: float = Field(
        default=800.0,
        gt=0,
        le=600_000,
        description="P99 to the first token of one sample, in milliseconds, above which it is too slow.",
    )
    pressure_samples: int = Field(
        default=3,
        ge=1,
        le=1000,
        description="Samples in a row until that counts, or counts no more; one each review_s.",
    )
    pressure_memory: float = Field(
        default=0.92,
        gt=0,
        le=1,
        description="Share of the memory's limit in use at which that part of the score is full.",
    )
    pressure_score: float = Field(
        default=0.85,
        ge=0,
        le=1,
        description="Score, 0 … 1, above which idle connections give way: size × (score − this) at each sample. 1: none ever.",
    )
    pressure_weights: tuple[float, float, float] = Field(
        default=(0.40, 0.35, 0.25), description="Parts of requests, latency and memory in that score; they make 1."
    )
    pressure_decay_s: tuple[float, float, float] = Field(
        default=(30.0, 60.0, 15.0),
        description="Seconds in which each of these falls to 37 % once what raised it is over.",
    )
    pressure_kept: tuple[int, int, int] = Field(
        default=(4, 2, 1),
        description="Connections that are kept: as a rule, while first tokens are too slow, while memory is at its mark.",
    )
    bulk_wait_s: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="Seconds bulk work waits for the end of too many requests before it is refused.",
    )
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

    @property
    def life_rules(self) -> LifeRules:
        """When one connection has lived long enough."""
        return LifeRules(self.connection_requests, self.connection_growth_bytes_per_s, self.connection_growth_samples)

    @model_validator(mode="after")
    def _parts_make_a_score(self) -> Self:
        if min(self.pressure_weights) < 0 or abs(sum(self.pressure_weights) - 1) > 1e-6:
            raise ValueError("pressure_weights must not be below 0, and make 1 together")
        if min(self.pressure_decay_s) <= 0:
            raise ValueError("pressure_decay_s must be above 0")
        if min(self.pressure_kept) < 0:
            raise ValueError("pressure_kept must not be below 0")
        return self

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

    @property
    def pressure_rules(self) -> PressureRules:
        """What concerns pressure."""
        return PressureRules(
            self.pressure_requests_per_s,
            self.pressure_overload,
            self.pressure_overload_s,
            self.pressure_first_token_ms,
            self.pressure_samples,
            self.pressure_memory,
            self.pressure_score,
            self.pressure_weights,
            self.pressure_decay_s,
            self.pressure_kept,
        )
