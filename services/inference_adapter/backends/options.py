"""What the settings say about the engine, as one value for the backends."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from streamway.simulation.settings import SimulationSettings

EngineKind = Literal["llamacpp", "llamacpp_inside", "openai_http", "simulated"]


class BackendOptions(BaseModel):
    """Which engine a worker drives, and how. The adapter's settings embed it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EngineKind = Field(
        default="simulated",
        description="llama.cpp (a process started here, or running at `url`; `llamacpp_inside`: in the adapter's own), any "
        "OpenAI-compatible server at `url`, or the simulator.",
    )
    url: str = Field(
        default="",
        description="Where a running engine listens: http://host:port or unix:/path. For llamacpp empty means: start one.",
    )
    model_path: Path | None = Field(default=None, description="GGUF file that llama.cpp is started with.")
    model_name: str = Field(
        default="",
        max_length=200,
        description="Name under which the mesh offers the model. Empty: the engine's own; of a GGUF file the stem in lower case.",
    )
    slots: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="Generations side by side. 0: what the engine says, else 4 for llama.cpp, 64 for others, 256 simulated.",
    )
    context_tokens: int = Field(
        default=0,
        ge=0,
        le=16 * 1024 * 1024,
        description="Longest context of one generation, in tokens. 0: what the engine says; 4,096 for a llama.cpp started here.",
    )
    slot_folder: Path | None = Field(
        default=None,
        description="Folder in which a llama.cpp started here leaves the KV of its sessions when it drains or is idle, for this "
        "worker's next engine or another worker with the same folder. It holds what was said. Empty: nothing is left.",
    )
    slot_folder_bytes: int = Field(
        default=2 * 1024**3, ge=0, le=1024**4, description="Most bytes of KV in that folder; the oldest go first."
    )
    idle_unload_s: float = Field(
        default=0.0,
        ge=0,
        le=86_400,
        description="Seconds without work after which a llama.cpp started here gives its memory back, and a vLLM with its sleep "
        "mode at `url` is put to sleep; the next request loads the model again. 0: never.",
    )
    threads: int = Field(
        default=0, ge=0, le=1024, description="Compute threads of a llama.cpp started here. 0: one for each core."
    )
    cores: str = Field(
        default="",
        pattern=r"^(\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*)?$",
        description="CPU cores that a llama.cpp with a process of its own may use, as 0-3,8. Empty: those of the adapter.",
    )
    gpu: bool = Field(
        default=False,
        description="The llama.cpp started here computes on the GPUs that CUDA_VISIBLE_DEVICES names: none of them has another "
        "worker's engine, and slots are what fits into 15/16 of what is free there. Wants the extra `gpu`; untried.",
    )
    engine_token: SecretStr | None = Field(
        default=None, description="API key that the engine wants, as a bearer token."
    )
    keep_alive: bool | None = Field(
        default=None,
        description="Use connections to the engine again. Empty: yes; with llama.cpp no, where 1 request in 40 fails on them.",
    )
    kept_connections: int = Field(
        default=256, ge=0, le=65_536, description="Most connections to the engine that are kept without a request."
    )
    kept_s: float = Field(
        default=0.0,
        ge=0,
        le=86_400,
        description="Seconds after which a connection without a request is not used again. 0: as long as the engine keeps it.",
    )
    connect_timeout_s: float = Field(
        default=5.0, gt=0, le=300, description="Longest wait for a connection to the engine, in seconds."
    )
    health_timeout_s: float = Field(
        default=5.0, gt=0, le=300, description="Longest wait for the answer to a health check, in seconds."
    )
    start_timeout_s: float = Field(
        default=300.0, gt=0, le=7200, description="Longest wait until an engine answers for the first time, in seconds."
    )
    probe: bool = Field(
        default=True,
        description="Try what the engine can do by a few short calls when it is started. Off: the row of its kind is believed.",
    )
    probe_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=300,
        description="Longest time for these calls, in seconds; about the rest that row is believed.",
    )
    pass_streamway_fields: bool = Field(
        default=False,
        description="Leave fields like streamway_faults in what goes to the engine; for the simulated server only.",
    )
    simulation: SimulationSettings = Field(
        default_factory=SimulationSettings, description="How the simulated engine behaves."
    )
