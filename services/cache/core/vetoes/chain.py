"""All rules in the order of their cost. The first that refuses ends it; doubts are collected for the verifier."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from services.cache.core.vetoes.antonyms import Antonyms
from services.cache.core.vetoes.contrasts import Contrasts
from services.cache.core.vetoes.dates import Dates
from services.cache.core.vetoes.direction import Direction
from services.cache.core.vetoes.entities import Entities
from services.cache.core.vetoes.finding import Finding, Severity, Veto
from services.cache.core.vetoes.formats import Formats
from services.cache.core.vetoes.insertion import Insertion
from services.cache.core.vetoes.negation import Negation
from services.cache.core.vetoes.numbers import Numbers
from services.cache.core.vetoes.order import Order
from services.cache.core.vetoes.scope import Scope
from services.cache.core.vetoes.script import Script
from services.cache.core.vetoes.swap import Swap
from services.cache.core.vetoes.text import Text

RULES: Final[tuple[Veto, ...]] = (
    Script(),
    Numbers(),
    Dates(),
    Negation(),
    Formats(),
    Antonyms(),
    Contrasts(),
    Scope(),
    Entities(),
    Order(),
    Direction(),
    Swap(),
    Insertion(),
)
NAMES: Final = tuple(rule.name for rule in RULES)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of a pair: refused by one, doubted by some, or clean."""

    refusal: Finding | None
    doubts: tuple[Finding, ...]


class Chain:
    """The rules that a tenant has switched on."""

    def __init__(self, disabled: Iterable[str] = ()) -> None:
        off = frozenset(disabled)
        if unknown := off - set(NAMES):
            raise ValueError(f"no rule is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
        self._rules = tuple(rule for rule in RULES if rule.name not in off)

    def judge(self, asked: Text, stored: Text) -> Verdict:
        """The first refusal, with the doubts found until then; or all doubts."""
        doubts: list[Finding] = []
        for rule in self._rules:
            finding = rule.judge(asked, stored)
            if finding is None:
                continue
            if finding.severity is Severity.REFUSE:
                return Verdict(finding, tuple(doubts))
            doubts.append(finding)
        return Verdict(None, tuple(doubts))
