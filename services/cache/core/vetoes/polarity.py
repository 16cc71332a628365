"""Words and their opposites."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from services.cache.core.vetoes.stem import stem
from services.cache.core.vetoes.tables import antonyms, english, wordnet

_PREFIXES: Final = ("un", "non", "dis", "in", "im", "ir", "il")
_SHORTEST: Final = 4
_NONE: Final[tuple[str, ...]] = ()


def opposite_among(word: str, others: Collection[str]) -> str | None:
    """The opposite of a stem among others: by the tables, by a prefix ("safe", "unsafe"), or "-less" for "-ful"."""
    known = _OPPOSITES.get(word, _NONE)
    return next((each for each in known if each in others), None) or next(
        (each for each in _formed(word) if each in others), None
    )


def _formed(word: str) -> Iterator[str]:
    if not word.isascii() or len(word) < _SHORTEST:
        return
    for prefix in _PREFIXES:
        yield prefix + word
        if word.startswith(prefix) and len(word) - len(prefix) >= _SHORTEST:
            yield word.removeprefix(prefix)
    for end, other in (("ful", "less"), ("less", "ful")):
        if word.endswith(end):
            yield word.removesuffix(end) + other
            yield word.removesuffix(end)


def _pairs() -> Iterator[tuple[str, str]]:
    for group in (antonyms.ENGLISH + antonyms.CHINESE).split():
        words = group.split("/")
        # The first is the opposite of the others; those are not of one another ("ban" and "forbid" against "allow").
        yield from ((words[0], other) for other in words[1:])
    for group in wordnet.PAIRS.split():
        one, _, other = group.partition("/")
        if not {one, other} & (antonyms.IGNORED | english.FUNCTION):
            yield one, other


# By stem, in the order of the tables: the same finding in every process.
_OPPOSITES: Final[dict[str, tuple[str, ...]]] = {}
for _one, _other in _pairs():
    for _a, _b in ((stem(_one), stem(_other)), (stem(_other), stem(_one))):
        if _a != _b and _b not in _OPPOSITES.get(_a, _NONE):
            _OPPOSITES[_a] = (*_OPPOSITES.get(_a, _NONE), _b)
