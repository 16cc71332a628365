"""English words without their endings, and words that differ by a slip of the keyboard."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from services.cache.core.vetoes.tables import english

_SHORTEST: Final = 3
_SHORTEST_ADVERB: Final = 7
_SHORTEST_SPELT: Final = 5
_SHORTEST_TYPO: Final = 5
# A letter that was replaced makes another word too easily ("nitrate", "nitrite") unless the word is long.
_SHORTEST_REPLACED: Final = 8


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """One form for "cancel", "cancels", "cancelled", "cancelling". Not a word: "charge" gives "charg"."""
    word = english.IRREGULAR.get(word, word)
    if not word.isascii() or len(word) <= _SHORTEST or word in english.KEPT:
        return word
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(english.KEEP_S):
        word = word[:-2] if word.endswith(("sses", "xes", "ches", "shes")) else word[:-1]
    if len(word) >= _SHORTEST_ADVERB:
        word = word.removesuffix("ly")
    for end in ("ing", "ed"):
        cut = word[: -len(end)]
        if word.endswith(end) and len(cut) >= _SHORTEST and any(letter in "aeiouy" for letter in cut):
            word = cut[:-1] if cut[-1] == cut[-2] and cut[-1] not in "sz" else cut
            break
    word = word.removesuffix("e")
    if len(word) > _SHORTEST_SPELT:  # British and American: organise, colour
        word = word[:-2] + "iz" if word.endswith("is") else word[:-3] + "or" if word.endswith("our") else word
    # "cancell" is "cancel", "allow" stays: only what is doubled in front of an ending is cut above.
    return word[:-2] + "l" if word.endswith("ll") and len(word) > 5 else word


def is_slip(one: str, other: str) -> bool:
    """The two differ by one letter too many, two letters in the wrong order, or in a long word one wrong letter."""
    short, long = sorted((one, other), key=len)
    if (
        len(short) < _SHORTEST_TYPO - 1
        or len(long) < _SHORTEST_TYPO
        or short[0] != long[0]
        or len(long) - len(short) > 1
    ):
        return False
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    if short[at + 2 :] == long[at + 2 :] and short[at : at + 2] == long[at : at + 2][::-1]:
        return True
    return len(long) >= _SHORTEST_REPLACED and short[at + 1 :] == long[at + 1 :]
