"""What a tenant's cache has saved and what it has cost: an account whose balance is its postings.

    credit   exact, folded, semantic: what the engine would have done for each answer that was found
    debit    embedding: the encoder's time        verifying: the verifier's time
             audits: would-be hits that went to a worker all the same
             wrong: answers that turned out wrong, `Prices.wrong_factor` times what they had saved

The semantic level has to pay for itself: see `services.cache.core.semantic.switch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from streamway.models.prices import Price

Credit = Literal["exact", "folded", "semantic"]
Debit = Literal["embedding", "verifying", "audits", "wrong"]
CREDITS: Final[tuple[Credit, ...]] = ("exact", "folded", "semantic")
DEBITS: Final[tuple[Debit, ...]] = ("embedding", "verifying", "audits", "wrong")
_SMALL_MODEL: Final = Price(0.05, 0.20, 0.05)


@dataclass(frozen=True, slots=True)
class Prices:
    """In money of the operator's choice: tokens of models without a price of their own; a second of the encoder's or the
    verifier's computer."""

    tokens: Price = _SMALL_MODEL
    second: float = 0.00002
    wrong_factor: float = 5.0


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens, money and seconds, each for itself: one is not changed into another."""

    tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.money + other.money, self.seconds + other.seconds)

    def __sub__(self, other: Amount) -> Amount:
        return self + other.times(-1)

    def times(self, factor: float) -> Amount:
        """So many of it."""
        return Amount(round(self.tokens * factor), self.money * factor, self.seconds * factor)


@dataclass(slots=True)
class Account:
    """One tenant's, or the sum of all. `posted` is told the money of every posting of the semantic level."""

    posted: Callable[[float], None] = lambda _: None
    _sums: dict[str, Amount] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def credit(self, level: Credit, amount: Amount) -> None:
        """An answer was found."""
        self._post(level, amount)
        if level == "semantic":
            self.posted(amount.money)

    def debit(self, what: Debit, amount: Amount) -> None:
        """It cost something; `amount` is positive. All of these are the semantic level's."""
        self._post(what, amount)
        self.posted(-amount.money)

    def amount(self, name: Credit | Debit) -> Amount:
        """The sum of one kind of postings."""
        return self._sums.get(name, Amount())

    def count(self, name: Credit | Debit) -> int:
        """How many postings."""
        return self._counts.get(name, 0)

    @property
    def balance(self) -> Amount:
        """What is left: all credits without all debits."""
        total = Amount()
        for credit in CREDITS:
            total += self.amount(credit)
        for debit in DEBITS:
            total -= self.amount(debit)
        return total

    def restore(self, lines: dict[str, tuple[Amount, int]]) -> None:
        """Makes the sums these: amount and number of postings by name. Nobody is told."""
        self._sums = {name: amount for name, (amount, _) in lines.items()}
        self._counts = {name: count for name, (_, count) in lines.items()}

    def _post(self, name: str, amount: Amount) -> None:
        self._sums[name] = self._sums.get(name, Amount()) + amount
        self._counts[name] = self._counts.get(name, 0) + 1
