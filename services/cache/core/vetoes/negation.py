"""Rule 4: the same number of negations, modulo two."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.difference import difference
from services.cache.core.vetoes.finding import Finding, doubt, refuse
from services.cache.core.vetoes.stem import stem
from services.cache.core.vetoes.tables import negation
from services.cache.core.vetoes.text import Text


class Negation:
    """Refuses where one text is turned round and the other is not."""

    name: Final = "negation"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """A pair of opposites in place of the negation ("not good", "bad") makes it a doubt: two turns cancel out."""
        if asked.negations == stored.negations:
            return None
        between = difference(asked, stored)
        if between.turns % 2 == 0:
            # Both turned round, or one twice: "can't … without" is mostly "must … with", but not always.
            return doubt(self.name, asked.negations, stored.negations) if between.turns else None
        positive = stored if len(asked.negations) > len(stored.negations) else asked
        softened = len(between.opposites) % 2 == 1 or not _FAILURE.isdisjoint(positive.stems)
        return (doubt if softened else refuse)(self.name, asked.negations, stored.negations)


_FAILURE: Final = frozenset(stem(word) for word in negation.FAILURE)
