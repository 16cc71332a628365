"""What a simulated engine is like."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class WireFaults(BaseModel):
    """What goes wrong in what the engine sends over HTTP, though it works; streams only. Tokens count from 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mute: bool = Field(default=False, description="Take the request, work on it, and never send a byte.")
    error_document: str = Field(
        default="", max_length=1000, description="Answer 200 with a JSON document that is an error with this message."
    )
    error_at_token: int = Field(default=0, ge=0, description="Send an error instead of this token. 0: off.")
    half_event_at_token: int = Field(
        default=0, ge=0, description="End the response in the middle of this token's event. 0: off."
    )
    tokens_after_finish: int = Field(default=0, ge=0, le=100, description="Send so many more behind the finish reason.")
    model: str = Field(default="", max_length=200, description="Name this model in what is sent.")
    usage: Literal["right", "negative", "words", "huge"] = Field(default="right", description="What the usage counts.")


class Faults(BaseModel):
    """What goes wrong, for one request (the field `streamway_faults` of its body) or for all. Tokens count from 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: int = Field(
        default=0, ge=0, le=599, description="Answer with this HTTP status, 400 … 599, instead of a stream. 0: off."
    )
    message: str = Field(default="", max_length=1000, description="What that answer says.")
    retry_after_s: int = Field(
        default=0,
        ge=0,
        le=3600,
        description="With the status 429 or 503: come again in so many seconds. 0: it does not say.",
    )
    first_token_delay_s: float = Field(default=0.0, ge=0, le=3600, description="Hold the first token back for so long.")
    stall_at_token: int = Field(default=0, ge=0, description="Stall before this token. 0: off.")
    stall_s: float = Field(default=0.0, ge=0, le=3600, description="How long that stall lasts, in seconds.")
    slow_factor: float = Field(default=1.0, ge=1, le=1000, description="How many times longer each token takes.")
    die_at_token: int = Field(
        default=0, ge=0, description="Break the connection instead of sending this token. 0: off."
    )
    garbage_at_token: int = Field(default=0, ge=0, description="Send what is no chunk instead of this token. 0: off.")
    split_utf8: bool = Field(default=False, description="Cut what is sent inside code points.")
    no_usage: bool = Field(default=False, description="Leave the usage out.")
    answer_tokens: int = Field(
        default=-1, ge=-1, description="End the answer by itself after so many tokens; 0 is an empty one. −1: off."
    )
    wire: WireFaults = Field(default_factory=WireFaults, description="What goes wrong on the way, over HTTP only.")


class SimulationSettings(BaseModel):
    """Rates and sizes of the simulated engine; the defaults resemble one small GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(default="simulated", min_length=1, description="Name of the model it serves.")
    prefill_tokens_per_s: float = Field(default=8000.0, gt=0, description="Prompt tokens computed a second.")
    prefill_chunk_tokens: int = Field(default=2048, ge=1, description="Prompt tokens computed in one step.")
    decode_base_ms: float = Field(default=6.0, gt=0, description="Time of a decode step, in ms, without its sequences.")
    decode_per_sequence_ms: float = Field(
        default=0.35, ge=0, description="Time that each running sequence adds to a decode step, in ms."
    )
    tokens_per_s: float = Field(
        default=0.0,
        ge=0,
        description="Fixed rate of each stream whatever the load, for benchmarks. 0: by the decode step.",
    )
    slots: int = Field(default=256, ge=1, le=65536, description="Sequences that run side by side.")
    kv_tokens: int = Field(default=524288, ge=16, description="Tokens the KV cache holds.")
    block_tokens: int = Field(default=16, ge=1, description="Tokens of one KV block.")
    context_tokens: int = Field(default=32768, ge=16, description="Longest prompt and answer together.")
    answer_tokens: int = Field(
        default=200, ge=2, description="Longest answer to a request without max_tokens; the shortest is half of it."
    )
    faults: Faults = Field(default_factory=Faults, description="What goes wrong for every request.")
