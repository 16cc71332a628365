"""Settings of the `streamway` command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from services.supervisor.core.failures import TryFailure
from services.supervisor.core.nightly import TIME_PATTERN
from streamway.config import ServiceSettings


def default_data_dir() -> Path:
    """Where a mesh keeps its data unless told otherwise: the XDG data folder of the user."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "streamway"


class UpSettings(ServiceSettings):
    """Settings of `streamway up`, with the prefix `STREAMWAY_UP_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_UP_")
    section: ClassVar[str] = "up"

    engine: str = Field(
        default="llamacpp",
        description="What runs the model: llamacpp, llamacpp_inside, simulated, or the URL of an OpenAI-compatible server.",
    )
    model: Path | None = Field(
        default=None, description="GGUF file for llama.cpp. Without it: the small model that `make run` installs."
    )
    workers: int = Field(default=1, ge=1, le=64, description="Number of inference-adapters, each with its own engine.")
    edges: int = Field(default=1, ge=1, le=64, description="Number of edge processes; they share one port.")
    routers: int = Field(
        default=1, ge=1, le=16, description="Number of routers. The first has the router's own port, others 7100 + i."
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address the edges listen on. Beyond loopback a mesh token and API keys are required.",
    )
    port: int = Field(
        default=8080, ge=0, le=65535, description="Port of the edges. 0: every process takes a free port, for tests."
    )
    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="Folder of the embedded Valkey and of what `streamway status` reads; made if missing. "
        "Default: `$XDG_DATA_HOME/streamway`, else `~/.local/share/streamway`.",
    )
    valkey: SecretStr | None = Field(
        default=None, description="URL of a Valkey or Redis to use. Without it: the embedded one is started."
    )
    ready_file: Path | None = Field(
        default=None, description="File to write as JSON once all processes are healthy, and again after each restart."
    )
    try_failure: TryFailure = Field(
        default=TryFailure.AUTO,
        description="Whether workers may be killed and paused from the console's page of failures. auto: while this machine alone"
        " can ask and nobody has credentials. on: operators may (STREAMWAY_EDGE_OPERATORS).",
    )
    start_timeout_s: float = Field(
        default=600.0, gt=0, description="Longest an adapter may take to load its model, in seconds."
    )
    fork_server: bool = Field(
        default=True,
        description="Start services as forks of one process that has imported what they need: a mesh is up, and a process that"
        " crashed is back, in less time and memory. Off: each imports for itself. Linux only.",
    )
    prune_at: str = Field(
        default="03:30",
        pattern=TIME_PATTERN,
        description="Local time, HH:MM, at which `streamway prune` is done each night. Empty: never.",
    )
    stop_grace_s: float = Field(
        default=60.0, ge=0, description="Longest each process may drain before it is killed, in seconds."
    )


class ClientSettings(ServiceSettings):
    """Settings of `streamway chat` and `streamway status`, with the prefix `STREAMWAY_CLIENT_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_CLIENT_")
    section: ClassVar[str] = "client"

    router: str = Field(
        default="",
        description="Router to talk to, host:port. Empty: that of the mesh in `data_dir`, else 127.0.0.1:7001.",
    )
    api_key: SecretStr | None = Field(default=None, description="API key, where the mesh asks for one.")
    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="Folder of the mesh that `streamway up` started. Default: as for `streamway up`.",
    )
