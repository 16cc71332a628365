"""Whether new weights are loaded beside the old ones, or in their place.

room for both    │ old serves ──────────────┤ old ends its answers ┤ unloaded
                 │   new loads ─┤ new serves ─────────────────────────────►

not for both     │ old ends its answers ┤ unloaded
                 │ ····· new answers wait ·········┤ new loads ┤ serves ──►
"""

from __future__ import annotations

from dataclasses import dataclass

from services.inference_adapter.core.fitting import fit
from services.inference_adapter.core.gguf import ModelFile


@dataclass(frozen=True, slots=True)
class Exchange:
    """`why`, for people, they are not loaded beside the old ones; "": they are."""

    why: str = ""

    @property
    def beside(self) -> bool:
        """The old ones serve meanwhile."""
        return not self.why


def decide(slots: int, context_tokens: int, model: ModelFile, room_bytes: int, *, gpu: bool) -> Exchange:
    """For an engine with as many slots as the one that serves. `room_bytes`: what is left beside that; 0: nobody knows."""
    if gpu:
        return Exchange("a GPU has one engine at a time")
    return Exchange(fit(slots, context_tokens, model, room_bytes).why)
