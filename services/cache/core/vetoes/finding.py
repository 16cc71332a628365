"""What a rule says about a pair of texts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from services.cache.core.vetoes.text import Text

_MOST_VALUE: Final = 120


class Severity(Enum):
    """What follows from a finding."""

    REFUSE = "refuse"
    """The stored answer is for another question."""
    VERIFY = "verify"
    """It may be: not served unless a verifier says so."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a stored answer is not served as it is. `rule` may be a metric label; the values are parts of the texts."""

    rule: str
    asked: str
    stored: str
    severity: Severity


class Veto(Protocol):
    """A rule: a pure function of two texts."""

    @property
    def name(self) -> str:
        """Its name in settings, metrics and explanations."""

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """What it objects to; None when it has no objection. Never raises, whatever the texts are."""


def refuse(rule: str, asked: object, stored: object) -> Finding:
    """A finding that ends it."""
    return Finding(rule, value(asked), value(stored), Severity.REFUSE)


def doubt(rule: str, asked: object, stored: object) -> Finding:
    """A finding for the verifier."""
    return Finding(rule, value(asked), value(stored), Severity.VERIFY)


def value(what: object) -> str:
    """Words as they are shown: sorted when they have no order, cut where they get long."""
    if isinstance(what, (set, frozenset)):
        what = sorted(map(str, what))
    shown = (
        what if isinstance(what, str) else " ".join(map(str, what)) if isinstance(what, (list, tuple)) else str(what)
    )
    return shown if len(shown) <= _MOST_VALUE else shown[: _MOST_VALUE - 1] + "…"
