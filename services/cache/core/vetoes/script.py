"""Rule 1: an answer is in the language of its question."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.finding import Finding, refuse
from services.cache.core.vetoes.tables import languages
from services.cache.core.vetoes.text import Text

# Words of a language that a text must have before it counts as written in it.
_ENOUGH: Final = 2


class Script:
    """Refuses where scripts or, in Latin letters, languages differ. What cannot be told passes."""

    name: Final = "script"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Compares the main script of both, then the language."""
        one, other = script_of(asked), script_of(stored)
        if one != other:
            return refuse(self.name, one, other) if one and other else None
        if one != "latin":
            return None
        one, other = language_of(asked), language_of(stored)
        return refuse(self.name, one, other) if one and other and one != other else None


def script_of(text: Text) -> str:
    """The script most of it is written in; empty without letters. Kana among Chinese characters is Japanese."""
    return text.once(_script)


def language_of(text: Text) -> str:
    """The language whose words it has most; empty when there are too few, or as many of another."""
    return text.once(_language)


def _script(text: Text) -> str:
    found = text.letters
    if "kana" in found and "han" in found:
        return "kana"
    # Three Chinese characters weigh as much as two words: "用 Python 写排序" is Chinese, "What does 你好 mean" is English.
    weights = {name: count / 1.5 if name == "han" else float(count) for name, count in found.items()}
    return max(weights, key=lambda name: (weights[name], name == "han", name), default="")


def _language(text: Text) -> str:
    counts = sorted(((len(words & text.words), name) for name, words in _WORDS.items()), reverse=True)
    (most, name), (next_most, _) = counts[:2]
    return name if most >= _ENOUGH and most > next_most else ""


_WORDS: Final = {name: frozenset(words.split()) for name, words in languages.WORDS.items()}
