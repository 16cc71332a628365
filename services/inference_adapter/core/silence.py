"""When an engine call has been silent for too long: before its first token, and between two tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Silence(Enum):
    """What an engine call is given up for."""

    FIRST_TOKEN = auto()
    GAP = auto()


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """In seconds; 0: never.

    `first_token_s`: from the engine call to its first token, of interactive work; `models` has other numbers for some models.
    `bulk_first_token_s`: the same of bulk work, of every model. `gap_s`: from one token to the next.
    """

    first_token_s: float = 0.0
    bulk_first_token_s: float = 0.0
    gap_s: float = 0.0
    models: Mapping[str, float] = field(default_factory=dict)

    def first_token_of(self, model: str, *, bulk: bool) -> float:
        """How long an engine call for this work may take to its first token."""
        return self.bulk_first_token_s if bulk else self.models.get(model, self.first_token_s)


class SilenceWatch:
    """Watches one engine call. Whoever gets its tokens sets `spoke`; `look` comes often against the limits."""

    __slots__ = ("_flows", "_gap_s", "_since", "first_token_s", "spoke")

    def __init__(self, first_token_s: float, gap_s: float) -> None:
        self.first_token_s = first_token_s
        self._gap_s = gap_s
        self._since = 0.0
        self._flows = False
        # It has made a token since the last look. Per-token path: only a flag is set there.
        self.spoke = False

    def began(self, now: float) -> None:
        """The engine call has begun."""
        self._since = now
        self._flows = self.spoke = False

    def look(self, now: float) -> Silence | None:
        """What it is to be given up for, if it is."""
        if self.spoke:
            self.spoke = False
            self._flows = True
            self._since = now
            return None
        limit_s = self._gap_s if self._flows else self.first_token_s
        if not limit_s or now - self._since < limit_s:
            return None
        return Silence.GAP if self._flows else Silence.FIRST_TOKEN
