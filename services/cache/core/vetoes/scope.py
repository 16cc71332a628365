"""Rule 10: no word that narrows the question on one side only."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.difference import difference
from services.cache.core.vetoes.finding import Finding, doubt
from services.cache.core.vetoes.stem import stem
from services.cache.core.vetoes.tables import scope
from services.cache.core.vetoes.text import Text


class Scope:
    """Doubts "for children", "only", "孕妇" where the other text has no such word."""

    name: Final = "scope"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Compares the words of the table, without endings."""
        between = difference(asked, stored)
        here, there = _WORDS.intersection(between.stems_here), _WORDS.intersection(between.stems_there)
        if not here and not there:
            return None
        only_here, only_there = between.content  # a word misspelt in the other text is not in these
        here, there = here.intersection(only_here), there.intersection(only_there)
        return doubt(self.name, here, there) if here or there else None


_WORDS: Final = frozenset(stem(word) for word in scope.WORDS)
