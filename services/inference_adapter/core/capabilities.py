"""What an engine can do, as it was found out when it was started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from streamway.models.abilities import Ability


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What is known of one engine. What is in neither set is not known, and is tried.

    `profile` is the row of the engines' table it was taken for, `version` what it calls itself. `kv_blocks` of `kv_block_tokens`
    tokens each is its KV cache; 0: it does not tell. `adapters` are the LoRA adapters it has loaded, by name. `tried`: what of
    both sets was found out by asking it.
    """

    can: frozenset[Ability] = frozenset()
    cannot: frozenset[Ability] = frozenset()
    profile: str = ""
    version: str = ""
    kv_blocks: int = 0
    kv_block_tokens: int = 0
    adapters: tuple[str, ...] = ()
    tried: frozenset[Ability] = frozenset()

    def found(self, abilities: Mapping[Ability, bool]) -> Capabilities:
        """These were tried; what was tried counts more than what the table says."""
        yes = frozenset(one for one, able in abilities.items() if able)
        no = frozenset(abilities) - yes
        return replace(
            self, can=(self.can - no) | yes, cannot=(self.cannot - yes) | no, tried=self.tried | frozenset(abilities)
        )


UNKNOWN: Final = Capabilities()
