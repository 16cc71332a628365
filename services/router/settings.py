"""Settings of the router."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from services.router.core.breaker import Waits
from services.router.core.breakers import BreakerOptions
from services.router.core.threshold import BreakerRule
from streamway.config import FilledText, ServiceSettings
from streamway.tenancy import TierName


class RouterSettings(ServiceSettings):
    """Settings with the prefix `STREAMWAY_ROUTER_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_ROUTER_")
    section: ClassVar[str] = "router"

    id: FilledText = Field(
        default="router-0",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Name of this router in leases and logs; unique in the mesh. {hostname} in it is this machine's.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on. Beyond loopback, keys are required.")
    advertise: FilledText = Field(
        default="",
        description="Address others reach this router at, host:port; {ip} and {hostname} in it are this machine's. Empty: where"
        " it listens.",
    )
    port: int = Field(default=7001, ge=0, le=65535, description="gRPC port. 0: take a free one.")
    operations_host: str = Field(default="127.0.0.1", description="Address of the operations port.")
    operations_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="HTTP port of /healthz, /readyz and /metrics. Unset: the gRPC port + 1000. 0: take a free one.",
    )
    workers: tuple[str, ...] = Field(
        default=(), description="Addresses of workers, host:port. Empty: those that hold a lease in Valkey."
    )
    caches: tuple[str, ...] = Field(
        default=(), description="Addresses of caches, host:port. Empty: those that hold a lease in Valkey."
    )
    poll_s: float = Field(default=0.5, gt=0, le=10, description="Seconds between two looks at the leases.")
    keep_workers_s: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="Seconds the last known workers count while Valkey does not answer; after that they are asked.",
    )
    strategy: Literal["ring", "rendezvous", "least_loaded", "prefix"] = Field(
        default="ring",
        description="How a worker is chosen: by the session on a ring or by rendezvous hashing, both with bounded loads; the"
        " least loaded; or where the prompt's beginning was sent before. The same at every router.",
    )
    load_factor: float = Field(
        default=1.25, ge=1.01, le=10, description="How far over its share of the tokens in flight a worker may go."
    )
    load_floor: int = Field(
        default=4, ge=1, le=1000, description="Requests of one size that a worker may always have, whatever its share."
    )
    vnodes: int = Field(default=160, ge=1, le=10_000, description="Points of each worker on the hash ring.")
    walk_home_ms: float = Field(
        default=50.0,
        ge=0,
        le=1_000_000,
        description="Milliseconds of prefill and waiting that it may cost to have a spilled session at home again; while it"
        " would cost more the session stays where its KV is.",
    )
    prefill_ms: float = Field(
        default=0.125,
        gt=0,
        le=1000,
        description="Milliseconds a prompt token is assumed to take at a worker that has not reported any yet.",
    )
    moves_per_s: float = Field(
        default=10.0,
        gt=0,
        le=100_000,
        description="Sessions a second that may move home to a worker that has come lately; others stay where they are.",
    )
    sessions: int = Field(
        default=50_000, ge=1, le=10_000_000, description="Most sessions of which it is remembered where their KV is."
    )
    session_ttl_s: float = Field(
        default=600.0, gt=0, le=86_400, description="Seconds a session's KV is assumed to last after its latest turn."
    )
    session_recall_ms: float = Field(
        default=5.0,
        ge=0,
        le=1000,
        description="Milliseconds a decision about a session that is new here waits for what other routers noted of it."
        " 0: it does not ask.",
    )
    prefix_blocks: int = Field(
        default=200_000,
        ge=1,
        le=100_000_000,
        description="Most pairs of prompt block (64 tokens) and worker that the strategy prefix remembers.",
    )
    stale_report_s: float = Field(
        default=5.0,
        gt=0,
        le=600,
        description="Seconds after which a load report that is not renewed counts no more: then as much is assumed as the"
        " others have.",
    )
    queue_limit: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Tasks that may wait in each lane of a worker before new ones of that lane are refused. Unset: twice the"
        " preload depth that it reports.",
    )
    memory_watermark: float = Field(
        default=0.85,
        gt=0,
        le=1,
        description="Share of the memory's limit in use from which bulk work is refused; looked at each 5 s. 1: never.",
    )
    most_workers: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Workers there may be at most, for `streamway_router_workers_wanted`: it asks for two more while one is "
        "short of memory, and never for more than nine tenths of this. 0: no such number is known.",
    )
    breaker_gold_errors: float = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="Part of a worker's calls of one model above which failures close it to gold; where that threshold starts.",
    )
    breaker_gold_window_s: float = Field(
        default=60.0,
        ge=1,
        le=3600,
        description="Seconds over which that is judged, and after which the threshold moves.",
    )
    breaker_gold_alpha: float = Field(
        default=0.92, ge=0, le=1, description="How much of the threshold stays when it moves. 1: it does not move."
    )
    breaker_silver_errors: float = Field(
        default=0.12,
        gt=0,
        le=0.5,
        description="Part of a worker's calls of one model above which failures close it to silver; where that threshold starts.",
    )
    breaker_silver_window_s: float = Field(
        default=120.0,
        ge=1,
        le=3600,
        description="Seconds over which that is judged, and after which the threshold moves.",
    )
    breaker_silver_alpha: float = Field(
        default=0.88, ge=0, le=1, description="How much of the threshold stays when it moves. 1: it does not move."
    )
    breaker_bronze_errors: float = Field(
        default=0.25,
        gt=0,
        le=0.5,
        description="Part of a worker's calls of one model above which failures close it to bronze; where that threshold starts.",
    )
    breaker_bronze_window_s: float = Field(
        default=300.0,
        ge=1,
        le=3600,
        description="Seconds over which that is judged, and after which the threshold moves.",
    )
    breaker_bronze_alpha: float = Field(
        default=0.85, ge=0, le=1, description="How much of the threshold stays when it moves. 1: it does not move."
    )
    breaker_least_calls: int = Field(
        default=10, ge=1, le=1_000_000, description="Calls within the window below which no breaker opens."
    )
    breaker_open_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="Seconds a worker is left alone when its breaker opens; twice as long each time it opens again.",
    )
    breaker_longest_open_s: float = Field(
        default=120.0, gt=0, le=86_400, description="The longest of these; at least `breaker_open_s`."
    )
    expected_output_tokens: int = Field(
        default=256, ge=1, le=1_000_000, description="Tokens an answer is assumed to have when its limit is higher."
    )
    max_generations: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Most live generations that this router answers for."
    )
    quota_lease_s: float = Field(
        default=15.0,
        ge=0.5,
        le=600,
        description="Seconds after which the slots of a router that died are free. The same at all routers.",
    )
    quota_share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Most of a tenant's remaining tokens a minute that one request may be estimated at.",
    )
    dispatch_timeout_s: float = Field(
        default=2.0, gt=0, le=60, description="Seconds Valkey may take for a task before it is refused."
    )
    token_path: Literal["direct", "relay"] = Field(
        default="direct",
        description="Where edges read tokens: at the workers, or, where they cannot reach those, through this router.",
    )
    durability: Literal["off", "relaxed", "strict"] = Field(
        default="relaxed", description="How much of a stream survives a crash where the request does not say."
    )
    channel_live_ttl_s: float = Field(
        default=600.0, ge=1, le=86_400, description="Seconds a response channel is kept after it was opened."
    )
    channel_finished_ttl_s: float = Field(
        default=300.0,
        ge=1,
        le=86_400,
        description="Seconds a response channel is kept after an end that a router writes.",
    )
    takeover_wait_s: float = Field(
        default=45.0, gt=0, le=600, description="Seconds a relayed stream waits for a worker that goes on with it."
    )
    worker_lease_s: float = Field(
        default=3.0,
        gt=0,
        le=60,
        description="Length of a worker's lease: so long must pass after an outage of Valkey before one counts as gone.",
    )
    unread_s: float = Field(
        default=3600.0,
        ge=1,
        le=7 * 86_400,
        description="Seconds a generation that nobody has to read may take where it names no deadline.",
    )
    idempotency_ttl_s: float = Field(
        default=86_400.0, ge=1, le=30 * 86_400, description="Seconds an idempotency key is remembered."
    )
    idempotency_keys: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Idempotency keys kept in memory for when Valkey is away; the oldest goes first.",
    )
    contexts: int = Field(
        default=65_536,
        ge=1,
        le=10_000_000,
        description="Most kept contexts in this router's memory; all are in Valkey.",
    )
    context_memory_bytes: int = Field(
        default=268_435_456,
        ge=1_048_576,
        le=1 << 40,
        description="Bytes that kept contexts may take in this router's memory, compressed.",
    )
    context_limit_bytes: int = Field(
        default=1_048_576,
        ge=1024,
        le=64 * 1024 * 1024,
        description="Most bytes that a kept context may have together with the turn that is appended to it.",
    )
    context_keep_s: float = Field(
        default=86_400.0,
        ge=60,
        le=365 * 86_400,
        description="Seconds a context is kept in Valkey after its latest turn.",
    )
    contexts_per_tenant: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="Most contexts of one tenant in Valkey; beyond that its longest unused are deleted.",
    )
    context_dictionary_bytes: int = Field(
        default=49_152,
        ge=0,
        le=65_536,
        description="Most bytes of the dictionary that a tenant's kept contexts are packed with, made of what many of them say"
        " alike. 0: none is made.",
    )
    context_wait_s: float = Field(
        default=1.0,
        ge=0,
        le=60,
        description="Seconds a turn of a kept context waits for the end of the one before it, before it is refused.",
    )
    cache_budget_ms: float = Field(
        default=20.0,
        ge=0,
        le=1000,
        description="Milliseconds a cache lookup may take; later answers are a miss. 0: no cache.",
    )
    cache_semantic_budget_ms: float = Field(
        default=100.0,
        ge=0,
        le=1000,
        description="The same for `semantic` requests that wait for an encoder: where the tenant has `semantic_lookup: before`,"
        " durability is off, only-if-cached is asked, or no worker has room. The bundled one takes about 30 for 20 words.",
    )
    cache_semantic_beside_ms: float = Field(
        default=2000.0,
        ge=1,
        le=60_000,
        description="The same where the worker has the request meanwhile, so that nobody waits.",
    )
    cache_prompt_limit_bytes: int = Field(
        default=1024 * 1024, ge=0, description="Larger requests are neither looked up nor stored, in bytes."
    )
    flight_followers: int = Field(
        default=256,
        ge=0,
        le=100_000,
        description="Most requests that read along with an identical one that runs; those beyond run for themselves. 0: all do.",
    )
    flights: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Most running generations that others may read along with."
    )
    flight_share_ms: float = Field(
        default=50.0,
        ge=0,
        le=10_000,
        description="How long a request that may share an engine call waits to hear from Valkey whether another router runs the "
        "same. 0: each router knows its own only.",
    )
    reattach_s: float = Field(
        default=1.0,
        gt=0,
        le=600,
        description="Seconds to try a broken stream to a worker again before it counts as lost.",
    )
    refused_s: float = Field(
        default=0.2,
        gt=0,
        le=60,
        description="Seconds for which a worker refuses connections after which its broken stream counts as lost, however much "
        "of reattach_s is left: nothing listens there any more.",
    )
    feedback_per_minute: int = Field(
        default=60,
        ge=1,
        le=100_000,
        description="Opinions on cached answers that a tenant may give in a minute at this router.",
    )
    silence_s: float = Field(
        default=6.0,
        gt=0,
        le=600,
        description="Seconds without any sign of a worker that is read from after which its stream is torn down.",
    )
    attach_heartbeat_s: float = Field(
        default=2.0,
        gt=0,
        le=60,
        description="Seconds without an event after which a relayed Attach stream gets a sign.",
    )
    outbox_limit_bytes: int = Field(
        default=4 * 1024 * 1024,
        ge=4096,
        description="Bytes that may wait for a slow caller; over it the stream ends as if the caller had left.",
    )
    heartbeat_s: float = Field(
        default=15.0, gt=0, le=15, description="Seconds without an event after which Generate sends a heartbeat."
    )
    credentials_check_s: float = Field(
        default=5.0,
        gt=0,
        le=30,
        description="Seconds between two looks whether the callers of open streams would still be let in; what they open is"
        " checked at once.",
    )
    drain_grace_s: float = Field(
        default=30.0, ge=0, le=3600, description="Seconds that relayed generations may go on after SIGTERM."
    )

    @model_validator(mode="after")
    def _waits_grow(self) -> Self:
        if self.breaker_longest_open_s < self.breaker_open_s:
            raise ValueError("breaker_longest_open_s must not be below breaker_open_s")
        return self

    @property
    def breaker_options(self) -> BreakerOptions:
        """What concerns breakers."""
        rules = {
            TierName.GOLD: BreakerRule(self.breaker_gold_errors, self.breaker_gold_window_s, self.breaker_gold_alpha),
            TierName.SILVER: BreakerRule(
                self.breaker_silver_errors, self.breaker_silver_window_s, self.breaker_silver_alpha
            ),
            TierName.BRONZE: BreakerRule(
                self.breaker_bronze_errors, self.breaker_bronze_window_s, self.breaker_bronze_alpha
            ),
        }
        waits = Waits(self.breaker_open_s, self.breaker_longest_open_s)
        return BreakerOptions(rules, self.breaker_least_calls, waits)

    @property
    def relays(self) -> bool:
        """Edges read through this router."""
        return self.token_path == "relay"  # noqa: S105 — a path, no secret
