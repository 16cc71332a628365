"""Rule 11: the same form of the answer: as JSON, in one sentence, in English."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.finding import Finding, refuse
from services.cache.core.vetoes.tables import formats
from services.cache.core.vetoes.text import Text


class Formats:
    """Refuses where one text asks for a form that the other does not ask for."""

    name: Final = "formats"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Compares what they ask for, however it is worded."""
        here, there = _of(asked), _of(stored)
        return None if here == there else refuse(self.name, here - there, there - here)


def _of(text: Text) -> frozenset[str]:
    return frozenset(formats.WORDS[word] for word in text.words & _WORDS)


_WORDS: Final = frozenset(formats.WORDS)
