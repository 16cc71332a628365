"""Where the edge is reached, and how it reaches routers and workers."""

from __future__ import annotations

from pydantic import Field

from streamway.config import ServiceSettings


class ReachSettings(ServiceSettings):
    """Addresses, and how long others may take."""

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
