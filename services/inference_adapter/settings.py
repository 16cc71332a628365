"""Settings of the inference-adapter."""

from __future__ import annotations

import socket
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from services.inference_adapter.backends.options import BackendOptions, EngineKind
from services.inference_adapter.core.concurrency import LimitRule
from services.inference_adapter.core.retry_budget import RetryBudget
from services.inference_adapter.core.silence import SilenceLimits
from streamway.config import FilledText, ServiceSettings
from streamway.lanes.task import MOST_ATTEMPTS
from streamway.memory import Floor
from streamway.simulation.settings import SimulationSettings

_MIB: Final = 1024 * 1024
# Of a llama.cpp that is started here: 4,096 tokens of prompt on two cores take up to 40 s.
_CPU_FIRST_TOKEN_S: Final = 60.0
# On a machine with less than 8 GB the shipped floor is so much of it: what the memory watermark leaves, so that bulk work is
# refused before an answer is cut.
_FLOOR_SHARE: Final = 0.15
# Operations HTTP listens this far above the gRPC port, unless set.
OPERATIONS_OFFSET: Final = 1000
# Names that would say too little among the adapter's other settings.
_RENAMED: Final = {
    "kind": "backend",
    "url": "engine_url",
    "keep_alive": "engine_keep_alive",
    "kept_connections": "engine_kept_connections",
    "kept_s": "engine_kept_s",
    "probe": "engine_probe",
    "probe_timeout_s": "engine_probe_timeout_s",
}


def _engine_option(name: str) -> Any:
    """The default, range and description that the backends gave one of their options."""
    return copy(BackendOptions.model_fields[name])


class AdapterSettings(ServiceSettings):
    """Settings with the prefix `STREAMWAY_ADAPTER_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_ADAPTER_", env_nested_delimiter="__")
    section: ClassVar[str] = "adapter"

    worker: FilledText = Field(
        default_factory=lambda: f"adapter-{socket.gethostname()}",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Name of this worker, unique in the mesh. It names the lanes, so keep it over restarts.",
    )
    host: str = Field(default="127.0.0.1", description="Address that gRPC listens on.")
    port: int = Field(default=7010, ge=0, le=65535, description="Port that gRPC listens on. 0: a free one.")
    advertise: FilledText = Field(
        default="",
        description="Address that others reach this worker at, host:port; {ip} and {hostname} in it are this machine's. Empty:"
        " where gRPC listens.",
    )
    operations_host: str = Field(default="127.0.0.1", description="Address that health and metrics listen on.")
    operations_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of health and metrics. 0: a free one. Empty: the gRPC port + 1000.",
    )
    backend: EngineKind = _engine_option("kind")
    engine_url: str = _engine_option("url")
    engine_token: SecretStr | None = _engine_option("engine_token")
    engine_keep_alive: bool | None = _engine_option("keep_alive")
    engine_kept_connections: int = _engine_option("kept_connections")
    engine_kept_s: float = _engine_option("kept_s")
    model_path: Path | None = _engine_option("model_path")
    model_name: str = _engine_option("model_name")
    slots: int = _engine_option("slots")
    context_tokens: int = _engine_option("context_tokens")
    threads: int = _engine_option("threads")
    cores: str = _engine_option("cores")
    gpu: bool = _engine_option("gpu")
    slot_folder: Path | None = _engine_option("slot_folder")
    slot_folder_bytes: int = _engine_option("slot_folder_bytes")
    idle_unload_s: float = _engine_option("idle_unload_s")
    connect_timeout_s: float = _engine_option("connect_timeout_s")
    health_timeout_s: float = _engine_option("health_timeout_s")
    start_timeout_s: float = _engine_option("start_timeout_s")
    engine_probe: bool = _engine_option("probe")
    engine_probe_timeout_s: float = _engine_option("probe_timeout_s")
    pass_streamway_fields: bool = _engine_option("pass_streamway_fields")
    simulation: SimulationSettings = _engine_option("simulation")

    preload_depth: int = Field(
        default=4,
        ge=0,
        le=65535,
        description="Tasks taken from each kind of lane beyond the engine's slots, to begin with.",
    )
    most_preload_depth: int = Field(
        default=256,
        ge=0,
        le=65535,
        description="Most that this grows to by itself when slots stand idle while lanes hold work; below it: it never grows.",
    )
    limit: LimitRule = Field(
        default_factory=LimitRule, description="How many generations the engine gets at a time moves with this."
    )
    slots_ahead: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Slots in which only urgent work starts while some of it runs, half of all at most. Unset: 2, or an eighth.",
    )
    degrade_after_s: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="Seconds a task that is not urgent may wait here until any worker of its model may take it; 0: for ever.",
    )
    queue_timeout_s: float = Field(
        default=300.0, gt=0, le=86_400, description="Longest wait for a slot from acceptance on, in seconds."
    )
    resume_grace_s: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="Seconds that a generation goes on without a live reader when its client may come back.",
    )
    orphan_grace_s: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="The same for every other generation: its reader was lost without a word.",
    )
    first_token_timeout_s: float = Field(
        default=8.0,
        ge=0,
        le=3600,
        description="Longest from the engine call to its first token for interactive work, in seconds; then it is cancelled. "
        "0: never. Where nothing is set, 60 for a llama.cpp that is started here, since a CPU computes long prompts slowly.",
    )
    first_token_timeout_models: dict[str, float] = Field(
        default={}, description='The same for single models, JSON: {"name": seconds}.'
    )
    first_token_timeout_bulk_s: float = Field(
        default=0.0, ge=0, le=86_400, description="The same for bulk work, of every model. 0: never."
    )
    retries: int = Field(
        default=2,
        ge=0,
        le=MOST_ATTEMPTS - 1,
        description="How often a call that made no token is made again by another worker; then its error is told. 0: never.",
    )
    retry_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of a model's calls in the last ten seconds, on all workers, that may be made again, 0 … 1.",
    )
    retry_floor: int = Field(
        default=3, ge=0, le=10_000, description="So many in ten seconds may be made again in any case."
    )
    token_gap_s: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="Silence of an engine in mid-answer after which it is given up, in seconds. 0: never.",
    )
    memory_watermark: float = Field(
        default=0.85,
        gt=0,
        le=1,
        description="Share of the memory's limit in use from which bulk work is left in its lanes; looked at each 5 s. 1: never.",
    )
    memory_limit_mark: float = Field(
        default=0.92,
        gt=0,
        le=1,
        description="Share of the memory's limit in use from which, at each look, the engine gets one generation fewer at a "
        "time; below it one more again. 1: never.",
    )
    memory_drain: float = Field(
        default=0.97,
        gt=0,
        le=1,
        description="Share of the cgroup's memory limit in use at three looks on end from which the worker drains and is started "
        "anew, at the earliest after two minutes. 1: never.",
    )
    kv_mark: float = Field(
        default=0.92,
        gt=0,
        le=1,
        description="Share of the KV cache in use from which, after kv_mark_s, no prefill begins and routers place nothing here. "
        "Of an engine that does not tell, the share of its GPU's memory, with the extra `gpu`; unverified, as no GPU "
        "was at hand. 1: never.",
    )
    kv_release: float = Field(
        default=0.87, gt=0, le=1, description="Share of the KV cache in use below which prefill begins again."
    )
    kv_mark_s: float = Field(
        default=10.0, ge=0, le=3600, description="Seconds for which the KV cache must be that full."
    )
    quota_lease_s: float = Field(
        default=15.0,
        ge=0.5,
        le=600,
        description="Seconds after which the slots of direct calls are free when this worker died. As the routers' setting.",
    )
    quota_share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Most of a tenant's remaining tokens a minute that one direct call may be estimated at. As the routers'"
        " setting.",
    )
    truncate_below_bytes: int = Field(
        default=1_200_000_000,
        ge=0,
        description="Bytes of memory, of the cgroup or else of the machine, that must be available while answers run; with less "
        "they are cut. Where nothing is set at most 15 % of what there is. More than there is stops the start. 0: never.",
    )
    task_lease_s: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="The idle time of tasks and the life of their records are renewed each third of so many seconds.",
    )
    lease_s: float = Field(
        default=3.0,
        ge=1,
        le=60,
        description="Seconds for which a silent worker still counts as alive; renewed at each third.",
    )
    engine_check_s: float = Field(
        default=2.0, ge=0.1, le=60, description="Seconds between two questions to the engine for its load."
    )
    drain_grace_s: float = Field(
        default=60.0, ge=0, le=3600, description="Longest that accepted work may go on after SIGTERM, in seconds."
    )
    drain_notice_s: float = Field(
        default=1.5,
        ge=0,
        le=60,
        description="Seconds after SIGTERM in which tasks of routers that have not noticed are still taken.",
    )

    flush_ms: float = Field(
        default=20.0,
        ge=1,
        le=1000,
        description="Longest a token waits to be merged with others while the process keeps up, in milliseconds.",
    )
    flush_late_ms: float = Field(
        default=100.0,
        ge=1,
        le=1000,
        description="The same at the most, in milliseconds: the wait becomes longer as the process falls behind. Not above "
        "`flush_ms`: it never does.",
    )
    sweep_from: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="How busy the worker is, as a share of a core, before engines' sockets are read together, as often as tokens "
        "are flushed, instead of each as its next token comes. First words always are at once, and whole answers while work "
        "waits for a slot. 1: never.",
    )
    flush_units: int = Field(
        default=16, ge=1, le=1024, description="Token units of one generation that are flushed at once."
    )
    heartbeat_s: float = Field(
        default=15.0,
        ge=0.1,
        le=300,
        description="Seconds of silence after which a stream gets an empty message as a sign of life.",
    )
    attach_heartbeat_s: float = Field(
        default=2.0,
        ge=0.1,
        le=60,
        description="The same for a stream with subscriptions; whoever reads it takes three times as much for a dead worker.",
    )
    reader_buffer_bytes: int = Field(
        default=32 * _MIB,
        ge=64 * 1024,
        le=1024 * _MIB,
        description="Bytes that may wait for the reader of one stream; beyond that the stream ends with SLOW_CONSUMER.",
    )
    most_subscriptions: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Subscriptions that one Attach stream may hold at once."
    )

    strict_pause_s: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Longest that a strict generation waits for a store that does not answer, in seconds.",
    )
    channel_live_s: float = Field(
        default=600.0,
        ge=60,
        le=86_400,
        description="Seconds that a response channel outlives its last renewal, each minute.",
    )
    channel_finished_s: float = Field(
        default=300.0, ge=1, le=86_400, description="Seconds that a response channel outlives the end of its answer."
    )
    reclaim_after_s: float = Field(
        default=5.0,
        ge=1,
        le=3600,
        description="Seconds without any router after which workers themselves take over what dead ones have left.",
    )

    memory_bytes: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        le=64 * 1024 * _MIB,
        description="Bytes of events kept for readers that come late, all generations together.",
    )
    memory_generation_bytes: int = Field(
        default=8 * _MIB,
        ge=64 * 1024,
        le=1024 * _MIB,
        description="Bytes of events kept of one generation; beyond that its oldest are dropped.",
    )
    memory_s: float = Field(default=60.0, ge=0, le=86_400, description="Seconds for which an ended generation is kept.")
    memory_generations: int = Field(
        default=4096, ge=1, le=1_000_000, description="Ended generations that are kept at most."
    )
    memory_ids: int = Field(
        default=65_536,
        ge=1,
        le=10_000_000,
        description="Ids of forgotten and of cancelled generations that are remembered at most.",
    )

    session_s: float = Field(
        default=600.0,
        ge=1,
        le=86_400,
        description="Seconds that the snapshot of a session outlives its last turn.",
    )
    session_bytes: int = Field(
        default=256 * 1024,
        ge=0,
        le=8 * _MIB,
        description="Most bytes of a session's context in its snapshot, compressed; of a larger one only the sizes are kept.",
    )
    warm: bool = Field(
        default=True,
        description="Whether an idle worker computes system prompts and the contexts of sessions that will come to it ahead.",
    )
    warm_share: float = Field(
        default=0.2, gt=0, le=1, description="Share of the time that this may take, 0 … 1: that of the prefill rate."
    )
    warm_load: float = Field(
        default=0.7, gt=0, le=1, description="Share of slots or KV in use above which nothing is computed ahead."
    )
    warm_prompts: int = Field(
        default=8,
        ge=0,
        le=64,
        description="System prompts that a worker computes ahead when it starts, for each model.",
    )

    @field_validator("first_token_timeout_models")
    @classmethod
    def _seconds(cls, models: dict[str, float]) -> dict[str, float]:
        for name, seconds in models.items():
            if not 0 <= seconds <= 3600:
                raise ValueError(f"{name!r} must have 0 … 3600 seconds")
        return models

    @model_validator(mode="after")
    def _marks(self) -> Self:
        if self.kv_release > self.kv_mark:
            raise ValueError("kv_release must not be above kv_mark")
        return self

    @property
    def operations(self) -> int:
        """The port of health and metrics."""
        if self.operations_port is not None:
            return self.operations_port
        return self.port + OPERATIONS_OFFSET if self.port else 0

    def silence_limits(self) -> SilenceLimits:
        """How long engine calls may be silent."""
        first_token_s = self.first_token_timeout_s
        on_cpu = self.backend == "llamacpp_inside" or (self.backend == "llamacpp" and not self.engine_url)
        if on_cpu and "first_token_timeout_s" not in self.model_fields_set:
            first_token_s = _CPU_FIRST_TOKEN_S
        return SilenceLimits(
            first_token_s, self.first_token_timeout_bulk_s, self.token_gap_s, self.first_token_timeout_models
        )

    def answer_floor(self) -> Floor:
        """How much memory must be available while answers run."""
        told = "truncate_below_bytes" in self.model_fields_set
        return Floor(self.truncate_below_bytes, 1.0 if told else _FLOOR_SHARE)

    def retry_budget(self) -> RetryBudget:
        """How many calls may be made again."""
        return RetryBudget(self.retries, self.retry_share, self.retry_floor)

    def backend_options(self) -> BackendOptions:
        """What concerns the engine."""
        own = {name: getattr(self, _RENAMED.get(name, name)) for name in BackendOptions.model_fields}
        return BackendOptions.model_validate(own)
