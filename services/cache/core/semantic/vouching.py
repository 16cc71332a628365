"""What was made for one user of a tenant is given to others only once it was right for one of them.

Whoever asks crafted questions fills a cache with answers that lie near to the questions of others. So the first time that an
entry would answer another user's question by likeness, a worker answers, and the two answers are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from services.cache.core.decide import Decision, Outcome
from streamway.runtime.recent import Recent

UNVOUCHED: Final[Literal["unvouched"]] = "unvouched"
# Entries that were right for somebody else. One that is forgotten is compared again.
_MOST: Final = 16_384


class Vouching:
    """`maker` gives the user for whom a tenant's entry was made, empty where none was named. None: everybody gets everything."""

    def __init__(self, maker: Callable[[str, str], str] | None) -> None:
        self._maker = maker
        self._vouched: Recent[str, bool] = Recent(_MOST)

    def checked(self, tenant: str, user: str, decision: Decision) -> Decision:
        """The decision; or that a worker answers, for an entry that nobody has vouched for."""
        entry = decision.entry
        if self._maker is None or decision.outcome is not Outcome.SERVE or entry is None:
            return decision
        if self._maker(tenant, entry) == user or self._vouched.get(entry):
            return decision
        return replace(decision, outcome=Outcome.AUDIT, reason=UNVOUCHED, compare=())

    def right(self, entry: str) -> None:
        """It was right for somebody else."""
        self._vouched.put(entry, True)

    def forget(self, entry: str) -> None:
        """It is gone."""
        self._vouched.pop(entry)
