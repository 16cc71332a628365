"""What a name that is asked for may mean: plain values, made whole by `loading` and swapped as a whole.

asked ──alias──► name ──choice──► large | small      either, by how the large one's workers do (the router's rule)
                  └───fallbacks─► others, in order   where no worker can take it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamway.models.prices import Price


@dataclass(frozen=True, slots=True)
class Choice:
    """A large and a small model behind one name.

    The small one is used from the moment that the large one's P99 time to the first token reaches `first_token_ms`, or its
    workers use `kv_used` (0 … 1) of their KV cache. The large one is used again when both are below `return_below` (0 … 1) of
    that, and not sooner than `hold_s` seconds after the last change.
    """

    large: str
    small: str
    first_token_ms: float = 2_000.0
    kv_used: float = 0.9
    return_below: float = 0.7
    hold_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ModelRouting:
    """All names of one moment, and what models cost. An alias never names an alias, a choice only models."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    fallbacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """What can be asked for beside the models themselves, sorted."""
        return sorted({*self.aliases, *self.choices})

    def target(self, asked: str) -> str:
        """What an alias stands for; any other name stands for itself."""
        return self.aliases.get(asked, asked)

    def models(self, asked: str) -> list[str]:
        """The models that this name means, fallbacks apart."""
        name = self.target(asked)
        choice = self.choices.get(name)
        return [name] if choice is None else [choice.large, choice.small]

    def in_order(self, asked: str, *, prefer_small: bool) -> list[str]:
        """The models to try, best first, fallbacks last. `prefer_small` decides where the name is a choice."""
        first = self.models(asked)
        if prefer_small:
            first.reverse()
        others = [other for one in (self.target(asked), *first) for other in self.fallbacks.get(one, ())]
        return list(dict.fromkeys([*first, *others]))
