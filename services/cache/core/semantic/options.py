"""How the semantic level decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from services.cache.core.vetoes.chain import NAMES


@dataclass(frozen=True, slots=True)
class SemanticOptions:
    """How decisions are made. `threshold` is the configured one; "static" the encoder's default; "budget" found from labels."""

    threshold: float | Literal["budget", "static"]
    multilingual: bool
    budget: float
    audit_share: float
    compare_share: float
    shadow: bool
    disabled: tuple[str, ...]
    self_contained: bool = False
    """Questions that need no turns before them are compared whatever those were."""
    refine: bool = False
    """What comparisons say of single entries counts beside the threshold."""

    def of(
        self, threshold: float | Literal["budget", "static"] | None, disabled: frozenset[str] | None
    ) -> SemanticOptions:
        """With what one tenant has otherwise; None: nothing. Rules that there are none of are passed over."""
        if threshold is None and disabled is None:
            return self
        rules = self.disabled if disabled is None else tuple(name for name in NAMES if name in disabled)
        return replace(self, threshold=self.threshold if threshold is None else threshold, disabled=rules)
