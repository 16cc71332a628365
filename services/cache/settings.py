"""Settings of the cache."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from services.cache.core.eviction import EvictionName
from services.cache.core.savings import Prices
from services.cache.core.semantic.kinds import IndexLimits
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.switch import Terms
from services.cache.core.vetoes.chain import Chain
from streamway.config import FilledText, ServiceSettings
from streamway.models.prices import Price


class CacheSettings(ServiceSettings):
    """Settings with the prefix `STREAMWAY_CACHE_`."""

    model_config = SettingsConfigDict(env_prefix="STREAMWAY_CACHE_")
    section: ClassVar[str] = "cache"

    node: FilledText = Field(
        default="cache-0",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Name of this process among the caches of a mesh; the id of its lease. {hostname} in it is this machine's.",
    )
    host: str = Field(default="127.0.0.1", description="Address the gRPC server listens on.")
    port: int = Field(default=7002, ge=0, le=65535, description="Port of the gRPC server. 0: a free one.")
    advertise: FilledText = Field(
        default="",
        description="Address, host:port, under which others reach this cache; {ip} and {hostname} in it are this machine's."
        " Empty: where it listens.",
    )
    operations_host: str = Field(
        default="127.0.0.1", description="Address of the operations port (/healthz, /readyz, /metrics)."
    )
    operations_port: int = Field(default=8002, ge=0, le=65535, description="The operations port. 0: a free one.")
    limit_bytes: int = Field(
        default=256 * 1024**2,
        ge=1024**2,
        description="Most bytes of all entries; over it the tenant with most gives.",
    )
    tenant_limit_bytes: int = Field(
        default=128 * 1024**2,
        ge=1024**2,
        description="Most bytes of one tenant's entries, so that none crowds out the rest; less where its buffered_bytes are.",
    )
    eviction: EvictionName = Field(
        default="w-tinylfu",
        description="In which order a tenant's entries go when bytes run out; each spares those that save most for their bytes:"
        " docs/cache-eviction.md compares them.",
    )
    memory_watermark: float = Field(
        default=0.85,
        gt=0,
        le=1,
        description="Share of the memory's limit in use from which limit_bytes gives way, a tenth at each look, 5 s apart, down "
        "to a quarter. 1: never.",
    )
    store_limit_bytes: int = Field(
        default=512 * 1024**2,
        ge=0,
        description="Most bytes of all entries in Valkey, where they outlive this process and other caches find them; a tenant"
        " has the share that it has of the memory. The same at all caches. 0: nothing is kept there.",
    )
    store_wait_s: float = Field(
        default=0.01, gt=0, le=1, description="Seconds a lookup waits for an entry that is in Valkey and not in memory."
    )
    answer_limit_bytes: int = Field(
        default=1024**2, ge=1024, le=1024**2, description="Largest answer that is kept, in bytes."
    )
    inserts_per_minute: int = Field(
        default=12_000,
        ge=0,
        description="Answers of one tenant that are kept in a minute, as many at once; 0: no limit.",
    )
    user_inserts_per_minute: int = Field(
        default=600,
        ge=0,
        description="Of these, for one user that requests name (OpenAI's `user` or `safety_identifier`, or the metadata's"
        " `user`); 0: no limit.",
    )
    request_limit_bytes: int = Field(
        default=1024**2, ge=1024, description="Largest request that is looked up, in bytes; larger ones are bypassed."
    )
    ttl_s: float = Field(
        default=3600.0, gt=0, description="Seconds an answer is served when the store names none; ± 10 % at random."
    )
    most_ttl_s: float = Field(default=86400.0, gt=0, description="Most seconds a store may ask for.")
    encoder: str = Field(
        default="auto",
        pattern=r"auto|off|bundled|https?://.{1,500}",
        description="What compares questions for `semantic` requests: `bundled` (multilingual-e5-small, 4 bits, 50 MB of memory,"
        " one core while it works), `off`, `auto` (bundled where its package is installed, else off), or the base URL of a server"
        " with OpenAI's /v1/embeddings.",
    )
    encoder_model: str = Field(
        default="", description="Model that the embeddings server is asked for; required with a URL."
    )
    encoder_api_key: SecretStr = Field(default=SecretStr(""), description="Bearer token for the embeddings server.")
    encoder_timeout_s: float = Field(
        default=0.25, gt=0, le=10, description="Seconds after which a question without a vector is a miss."
    )
    encoder_most_waiting: int = Field(
        default=64, ge=1, le=10000, description="Questions that wait for the encoder; one more is a miss at once."
    )
    semantic_threshold: float | Literal["budget", "static"] = Field(
        default="budget",
        description="Cosine from which a question is taken for the same: a number from -1 to 1; `static`, which is 0.92 with the"
        " bundled encoder and 0.87 with another; or `budget`, found from comparisons so that semantic_wrong_budget is kept."
        " A tenant may have its own, changed while the cache runs: docs/tenants.md.",
    )
    semantic_wrong_budget: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description="Most wrong answers per question that reaches the semantic level, as a share; of each tenant for itself.",
    )
    semantic_audit_share: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Least share of would-be semantic hits that go to a worker, so that both answers can be compared. Three in"
        " four at first and while the threshold is not found from comparisons; then as many as keep what may be wrong unseen"
        " within semantic_wrong_budget.",
    )
    semantic_compare_share: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="Share of semantic misses whose fresh answer is compared with the nearest entry's.",
    )
    semantic_same_answer: float = Field(
        default=0.93, ge=0, le=1, description="Cosine from which two answers that no rule tells apart say the same."
    )
    semantic_vouched: bool = Field(
        default=False,
        description="An answer that was made for one user of a tenant is given to its other users by likeness only after a"
        " worker's answer to such a question was compared with it. For tenants whose users need not trust one another.",
    )
    semantic_shadow: bool = Field(
        default=False,
        description="The semantic level decides and compares, and serves nothing: see `Stats` for what it would do.",
    )
    semantic_history: Literal["equal", "self_contained"] = Field(
        default="equal",
        description="`equal`: questions are compared only where all turns before them are equal. `self_contained`: a question of"
        " one sentence, at least four words of content and none that points elsewhere is compared whatever was said before it.",
    )
    semantic_by_entry: bool = Field(
        default=False,
        description="Where semantic_threshold is budget: comparisons with an entry shift its similarities, by 0.03 at most.",
    )
    semantic_rules_off: tuple[str, ...] = Field(
        default=(), description="Rules that refuse no near question any more, by name: see docs/cache.md."
    )
    index_flat_most: int = Field(
        default=50_000,
        ge=4096,
        description="Entries of one context that a semantic lookup compares one by one; with more they get an HNSW index,"
        " which is built in the background.",
    )
    index_hnsw_most: int = Field(
        default=1_000_000,
        ge=4096,
        description="Entries of one context from which they get an IVF-PQ index in place of the HNSW.",
    )
    index_limit_bytes: int = Field(
        default=512 * 1024**2,
        ge=0,
        description="Most bytes of all HNSW indexes, beside limit_bytes; a context whose HNSW would exceed it gets an IVF-PQ, a"
        " sixth as large.",
    )
    index_folder: str = Field(
        default="",
        description="Folder of this cache alone in which HNSW and IVF-PQ indexes are kept over a restart. Empty: they are built"
        " again.",
    )
    price_prompt: float = Field(
        default=0.05,
        ge=0,
        description="Money that a million prompt tokens cost, in any currency: for the ledger, of models without a price in"
        " `models.prices`.",
    )
    price_completion: float = Field(
        default=0.20,
        ge=0,
        description="Money that a million tokens of an answer cost: for the ledger, of models without a price of their own.",
    )
    price_second: float = Field(
        default=0.00002, ge=0, description="Money that a second of the encoder's computer costs: for the ledger."
    )
    semantic_wrong_cost: float = Field(
        default=5.0, ge=0, description="What a wrong semantic answer costs, as a multiple of what it saved."
    )
    semantic_must_pay: bool = Field(
        default=True,
        description="A tenant whose semantic level costs more than it saves over semantic_pay_window questions is not asked there"
        " for a while; false: the ledger is kept, and nothing follows.",
    )
    semantic_pay_window: int = Field(
        default=500, ge=10, le=100_000, description="Questions over which the semantic level has to pay for itself."
    )
    semantic_pay_grace: int = Field(
        default=2_000,
        ge=0,
        description="Questions of a tenant before its semantic level, which learns, has to pay for itself.",
    )
    sweep_interval_s: float = Field(default=10.0, gt=0, description="Seconds between sweeps of expired entries.")
    drain_grace_s: float = Field(default=2.0, ge=0, description="Seconds that running calls get at shutdown.")

    @property
    def semantic_options(self) -> SemanticOptions:
        """For the semantic level."""
        return SemanticOptions(
            threshold=self.semantic_threshold,
            multilingual=not self.encoder.startswith("http"),
            budget=self.semantic_wrong_budget,
            audit_share=self.semantic_audit_share,
            compare_share=self.semantic_compare_share,
            shadow=self.semantic_shadow,
            disabled=self.semantic_rules_off,
            refine=self.semantic_by_entry,
            self_contained=self.semantic_history == "self_contained",
        )

    @property
    def index_limits(self) -> IndexLimits:
        """Which kind of index a context gets."""
        return IndexLimits(self.index_flat_most, self.index_hnsw_most, self.index_limit_bytes)

    @property
    def prices(self) -> Prices:
        """For the ledger."""
        tokens = Price(self.price_prompt, self.price_completion, self.price_prompt)
        return Prices(tokens, self.price_second, self.semantic_wrong_cost)

    @property
    def pay_terms(self) -> Terms:
        """When the semantic level has to pay."""
        return Terms(window=self.semantic_pay_window, grace=self.semantic_pay_grace)

    @field_validator("semantic_rules_off")
    @classmethod
    def _rules_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        Chain(names)  # raises ValueError
        return names

    @field_validator("semantic_threshold")
    @classmethod
    def _a_similarity(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not -1 <= value <= 1:  # NaN too
            raise ValueError("a similarity is a number from -1 to 1")
        return value

    @model_validator(mode="after")
    def _a_server_is_asked_for_a_model(self) -> Self:
        if self.encoder.startswith("http") and not self.encoder_model:
            raise ValueError("encoder is a URL: set encoder_model to the name of its model")
        return self

    @model_validator(mode="after")
    def _a_budget_needs_comparisons(self) -> Self:
        if self.semantic_threshold == "budget" and not (self.semantic_audit_share and self.semantic_compare_share):
            raise ValueError(
                "where semantic_threshold is budget it is found from comparisons: semantic_audit_share and"
                " semantic_compare_share must be above 0"
            )
        return self
