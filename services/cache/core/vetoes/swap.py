"""Rule 9: one or two words replaced and the rest equal is mostly another question."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.difference import difference
from services.cache.core.vetoes.finding import Finding, doubt
from services.cache.core.vetoes.text import Text

_MOST: Final = 2


class Swap:
    """Doubts "reset the password" for "reset the counter"; a slip of the keyboard is no swap."""

    name: Final = "swap"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Content words only: grammar may differ."""
        here, there = difference(asked, stored).content
        if here and there and _size(here) <= _MOST and _size(there) <= _MOST:
            return doubt(self.name, here, there)
        return None


def _size(words: tuple[str, ...]) -> float:
    """Words, where two Chinese characters that the tables do not know as words count as one."""
    return sum(0.5 if len(word) == 1 and not word.isascii() else 1 for word in words)
