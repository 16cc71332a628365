"""How many wrong answers may still be served: the account of a budget, kept by what was found of what was to be served.

Each question that reaches the level credits the budget. A would-be answer is compared in place of being served with a probability
p; one that was wrong then stands for (1 - p) / p that were served without a comparison, and debits as many. In expectation the
debits are the wrong answers that were served, in whatever order questions come (D. G. Horvitz, D. J. Thompson, JASA 47, 1952).

p follows from the balance: no single finding may cost more than a part of it,

    (1 - p) / p <= balance / CAUTION        so        p = 1 / (1 + balance / CAUTION)

The balance never falls below 0 that way, and the wrong answers served up to any moment are at most `CREDIT` and the budget for
each question, in expectation: nothing is assumed of the questions. What was found wrong makes more be compared until the
balance has grown again. What is compared at the same time knows nothing of each other; an answer that no judge could compare
debits nothing.
"""

from __future__ import annotations

from typing import Final

# Of the balance, the part that one finding may cost: 1 of so many.
CAUTION: Final = 2.0
# Wrong answers at the beginning, so that three would-be answers in four are compared at the first question.
CREDIT: Final = 2 / 3
# Questions after which a credit, or a debit, counts for 1 / e: what was saved up long ago is not for spending.
MEMORY: Final = 5_000.0


class Allowance:
    """Of a budget `wrong`, the most wrong answers per question. `balance` is in wrong answers."""

    def __init__(self, wrong: float) -> None:
        self._wrong = wrong
        self.balance = CREDIT

    @property
    def audit(self) -> float:
        """The least share of would-be answers that are to be compared, in (0, 1]."""
        return 1 / (1 + max(self.balance, 0.0) / CAUTION)

    def request(self) -> None:
        """A question reached the level."""
        self.balance += self._wrong - (self.balance - CREDIT) / MEMORY

    def found_wrong(self, share: float) -> None:
        """A would-be answer was compared with probability `share`, and was wrong."""
        self.balance -= stands_for(share)

    def restore(self, balance: float) -> None:
        """Goes on where another one was."""
        self.balance = min(balance, CREDIT + MEMORY * self._wrong)


def stands_for(share: float) -> float:
    """How many wrong answers were served for one that was found with probability `share` in place of being served."""
    return (1 - share) / share
