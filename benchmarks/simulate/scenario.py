"""What is asked of a mesh: the same data drives the simulation and a live run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from streamway.simulation.settings import SimulationSettings

_WORDS: Final = (
    "alpha",
    "bravo",
    "charlie",
    "delta",
    "echo",
    "foxtrot",
    "golf",
    "hotel",
    "india",
    "juliett",
    "kilo",
    "lima",
    "mike",
)


_TIERS: Final = ("gold", "silver", "bronze")


@dataclass(frozen=True, slots=True)
class Tier:
    """A class of tenants: its share of the requests, its weight, and the priority its requests carry."""

    name: str
    share: float
    weight: int
    priority: int

    @property
    def number(self) -> int:
        """As in streamway.v1.Tier."""
        return _TIERS.index(self.name) + 1 if self.name in _TIERS else 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. Asked `at` seconds after the start, or as soon as the session's turn before has ended."""

    at: float
    session: int
    text: str
    answer_tokens: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class Scenario:
    """Turns that arrive at random at `turns_per_s`, each of a session drawn by Zipf's law with `exponent`.

    A session's prompt is its system prompt and all of its turns so far; it begins anew when it would have more than
    `most_tokens`. Tokens are four bytes. `joins_at_s`: when one more worker comes; 0: none does. `slots_ahead`: slots that a
    worker keeps for urgent work; None: its default. `queue_timeout_s`: longest wait for a slot.
    """

    name: str
    workers: int
    engine: SimulationSettings
    duration_s: float
    turns_per_s: float
    sessions: int
    exponent: float = 0.9
    preload_depth: int = 4
    slots_ahead: int | None = None
    queue_timeout_s: float = 300.0
    system_tokens: int = 300
    user_tokens: tuple[int, int] = (30, 200)
    answer_tokens: tuple[int, int] = (60, 180)
    most_tokens: int = 6000
    joins_at_s: float = 0.0
    routers: int = 1
    tiers: tuple[Tier, ...] = field(default=(Tier("all", 1.0, 1, 0),))
    seed: int = 1

    @property
    def queue_limit(self) -> int:
        """Tasks a worker may have beyond its slots before new ones are refused."""
        return 2 * self.preload_depth

    def system_prompt(self, session: int) -> str:
        """A third of the sessions share each of three system prompts."""
        return _text(random.Random(session % 3), self.system_tokens)

    def turns(self) -> Iterator[Turn]:
        """In order of time; the same for the same seed."""
        draw = random.Random(self.seed)
        popularity = list(accumulate(1 / (rank + 1) ** self.exponent for rank in range(self.sessions)))
        numbers, shares = range(self.sessions), [tier.share for tier in self.tiers]
        tier_of = draw.choices(self.tiers, weights=shares, k=self.sessions)
        now = draw.expovariate(self.turns_per_s)
        while now < self.duration_s:
            session = draw.choices(numbers, cum_weights=popularity)[0]
            # With tiers each request draws its own: shares are of requests, not of sessions.
            tier = draw.choices(self.tiers, weights=shares)[0] if len(self.tiers) > 1 else tier_of[session]
            yield Turn(
                now, session, _text(draw, draw.randint(*self.user_tokens)), draw.randint(*self.answer_tokens), tier
            )
            now += draw.expovariate(self.turns_per_s)


def _text(draw: random.Random, tokens: int) -> str:
    """Words of about so many tokens."""
    size, words = 4 * tokens, []
    while size > 0:
        words.append(draw.choice(_WORDS) + str(draw.randrange(1000)))
        size -= len(words[-1]) + 1
    return " ".join(words)


TIERS: Final = (Tier("gold", 0.2, 4, 100), Tier("silver", 0.3, 2, 50), Tier("bronze", 0.5, 1, 0))
_ENGINE: Final = SimulationSettings(slots=16, kv_tokens=131_072)
# About 70 % of what eight of these engines make when every prefix is in KV.
AFFINITY: Final = Scenario("affinity", 8, _ENGINE, duration_s=120, turns_per_s=50, sessions=2000)
JOIN: Final = Scenario("join", 8, _ENGINE, duration_s=120, turns_per_s=50, sessions=2000, joins_at_s=60)
# `turns_per_s` is set to twice what the mesh is measured to finish.
OVERLOAD: Final = Scenario(
    "overload", 4, _ENGINE, duration_s=60, turns_per_s=0, sessions=4000, exponent=0.2, preload_depth=16, tiers=TIERS
)
# The same on two workers that are slow enough for a mesh on two cores, at the depth that workers begin with.
LIVE_OVERLOAD: Final = replace(
    OVERLOAD,
    name="live-overload",
    workers=2,
    engine=SimulationSettings(slots=16, kv_tokens=131_072, decode_base_ms=20, prefill_tokens_per_s=4000),
    sessions=1000,
    preload_depth=4,
)
# Small enough to run beside its clients on two cores.
LIVE: Final = Scenario(
    "live",
    4,
    SimulationSettings(slots=4, kv_tokens=32_768, decode_base_ms=20, prefill_tokens_per_s=4000),
    duration_s=60,
    turns_per_s=4.5,
    sessions=80,
    answer_tokens=(40, 80),
)
