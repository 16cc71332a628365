"""What happens under pressure."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from services.edge.core.pressure import PressureRules
from streamway.config import ServiceSettings


class PressureSettings(ServiceSettings):
    """What is too much, and what gives way then."""

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

    @model_validator(mode="after")
    def _parts_make_a_score(self) -> Self:
        if min(self.pressure_weights) < 0 or abs(sum(self.pressure_weights) - 1) > 1e-6:
            raise ValueError("pressure_weights must not be below 0, and make 1 together")
        if min(self.pressure_decay_s) <= 0:
            raise ValueError("pressure_decay_s must be above 0")
        if min(self.pressure_kept) < 0:
            raise ValueError("pressure_kept must not be below 0")
        return self

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
