"""How the semantic level decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SemanticOptions:
    """How decisions are made. `threshold` is the configured one; None: found from labels."""

    threshold: float | None
    multilingual: bool
    budget: float
    audit_share: float
    compare_share: float
    shadow: bool
    disabled: tuple[str, ...]
