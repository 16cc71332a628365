"""What every system is asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One load. `streams` at once, `rounds` answers each, of `tokens` tokens at `rate` tokens/s from the engine."""

    name: str
    streams: int
    tokens: int = 100
    rate: float = 20.0
    rounds: int = 1
    prompt_bytes: int = 80
    repeated: float = 0.0
    # Surfaces that are asked; each system has some of them.
    surfaces: tuple[str, ...] = ("sse",)
    # Of our own mesh, over SSE; its other surfaces are asked with the default.
    durabilities: tuple[str, ...] = ("relaxed",)

    @property
    def ramp_s(self) -> float:
        """Starts are spread over the length of an answer, so that half of the streams are live in the mean; 5 s at the most."""
        return min(5.0, self.tokens / self.rate)

    @property
    def limit_s(self) -> float:
        """How long a load may take before what is missing counts as an error."""
        return 30.0 + self.ramp_s + 3 * self.rounds * self.tokens / self.rate


ALL_SURFACES = ("sse", "rest", "websocket", "grpc")
ALL_DURABILITIES = ("off", "relaxed", "strict")

CASES = (
    Case("100 streams", 100, surfaces=ALL_SURFACES, durabilities=ALL_DURABILITIES),
    Case("1,000 streams", 1000, surfaces=ALL_SURFACES, durabilities=ALL_DURABILITIES),
    Case("2,000 streams", 2000, surfaces=ALL_SURFACES, durabilities=ALL_DURABILITIES),
    Case("fast engine: 200 streams of 100 tokens/s", 200, tokens=300, rate=100.0, surfaces=ALL_SURFACES),
    # Answers long enough for all of them to run at the same time: 100,000 and 120,000 tokens/s are asked for.
    *(
        Case(
            f"saturation: {streams} streams of 200 tokens/s",
            streams,
            tokens=3000,
            rate=200.0,
            surfaces=("sse", "websocket", "grpc"),
        )
        for streams in (500, 600)
    ),
    Case("8 tokens an answer, 64 at once", 64, tokens=8, rate=1000.0, rounds=40, surfaces=ALL_SURFACES),
    Case("prompts of 12 KB", 100, tokens=20, prompt_bytes=12_000),
    Case("prompts of 1 MB", 8, tokens=20, prompt_bytes=1_000_000),
    Case("90 % repeated prompts", 100, tokens=50, rounds=4, repeated=0.9),
)
