"""What only one of two texts has; several rules ask for it."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Final

from services.cache.core.vetoes.polarity import opposite_among
from services.cache.core.vetoes.stem import is_slip, stem
from services.cache.core.vetoes.tables import negation, synonyms
from services.cache.core.vetoes.text import Text

# Beyond so many words the texts are not one text with slips.
_MOST_COMPARED: Final = 8
_NEGATIONS: Final = negation.ENGLISH | negation.CHINESE


class Difference:
    """Two texts seen together."""

    def __init__(self, asked: Text, stored: Text) -> None:
        self._asked = asked
        self._stored = stored
        self.stems_here = asked.stems - stored.stems
        self.stems_there = stored.stems - asked.stems

    @cached_property
    def content(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Content words that only one of them has, in order; a slip of the keyboard or a synonym is no difference."""
        here, there = _only(self._asked, self._stored), _only(self._stored, self._asked)
        if here and there and len(here) + len(there) <= _MOST_COMPARED:
            for word in tuple(here):
                other = next((each for each in there if is_slip(word, each)), None)
                if other is not None:
                    here.remove(word)
                    there.remove(other)
        return tuple(here), tuple(there)

    @cached_property
    def opposites(self) -> tuple[tuple[str, str], ...]:
        """Pairs (word here, word there) of which the one is the opposite of the other, and neither is in both texts."""
        # What is counted as a negation is not counted again as an opposite: "with" and "without".
        left = set(self.stems_there - _NEGATIONS)
        found: list[tuple[str, str]] = []
        for word in sorted(self.stems_here - _NEGATIONS):
            other = opposite_among(word, left)
            if other is not None:
                left.discard(other)
                found.append((word, other))
        return tuple(found)

    @property
    def turns(self) -> int:
        """By how many negations the two differ."""
        return abs(len(self._asked.negations) - len(self._stored.negations))


@lru_cache(maxsize=8)
def difference(asked: Text, stored: Text) -> Difference:
    """The same object for all rules that judge a pair; texts are themselves, not what they say, to this cache."""
    return Difference(asked, stored)


def _only(text: Text, other: Text) -> list[str]:
    """The content words of a text for which the other has neither the same word nor one for the same."""
    known = other.once(_meanings)
    return [
        word
        for word in dict.fromkeys(text.content)
        if word not in other.bag and known.isdisjoint(_SYNONYMS.get(word, _NONE))
    ]


def _meanings(text: Text) -> frozenset[int]:
    return frozenset(group for word in text.bag for group in _SYNONYMS.get(word, _NONE))


_NONE: Final[frozenset[int]] = frozenset()
# The groups of each word: it may be in several.
_SYNONYMS: Final[dict[str, frozenset[int]]] = {}
for _number, _group in enumerate(synonyms.GROUPS.split()):
    for _word in _group.split("/"):
        _SYNONYMS[stem(_word)] = _SYNONYMS.get(stem(_word), _NONE) | {_number}
