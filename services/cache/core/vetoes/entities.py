"""Rule 6: the same people, places, products and identifiers."""

from __future__ import annotations

import re
from typing import Final

from services.cache.core.vetoes.finding import Finding, doubt, refuse
from services.cache.core.vetoes.script import script_of
from services.cache.core.vetoes.stem import is_slip, stem
from services.cache.core.vetoes.tables import dates, english, names
from services.cache.core.vetoes.text import Text
from services.cache.core.vetoes.tokens import CODE, HAN, WORD, Token

_QUOTED: Final = re.compile(r'"([^"\n]{1,80})"|“([^”\n]{1,80})”|「([^」\n]{1,80})」|《([^》\n]{1,80})》')

_MOST_INITIALS: Final = 5


class Entities:
    """Refuses where each text names something that the other does not; doubts where only one does."""

    name: Final = "entities"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Names are compared folded, and against all words of the other text: "apple pay" is Apple Pay."""
        here, there = entities_of(asked), entities_of(stored)
        if here.keys() == there.keys():
            return None
        only_here = {name for name in here if name not in there and not _occurs(here[name], stored)}
        only_there = {name for name in there if name not in here and not _occurs(there[name], asked)}
        if not only_here and not only_there:
            return None
        if len(only_here) == len(only_there) == 1 and is_slip(*only_here, *only_there):
            return doubt(self.name, only_here, only_there)
        return (refuse if only_here and only_there else doubt)(self.name, only_here, only_there)


def entities_of(text: Text) -> dict[str, str]:
    """What it names: the name that is compared, and the word it was written as."""
    return text.once(_find)


def _find(text: Text) -> dict[str, str]:
    found: dict[str, str] = {}
    capitals = _capitals_count(text)
    script = script_of(text)
    for token in text.tokens:
        if token.text in names.NAMES and (token.text not in names.CAPITAL or token.surface[0].isupper()):
            found[names.NAMES[token.text]] = token.text
        elif token.kind == CODE or (capitals and _is_capital(token)) or _is_foreign(token, script):
            found[token.text] = token.text
    for match in _QUOTED.finditer(text.surface):
        quoted = next(group for group in match.groups() if group is not None).casefold().strip()
        found[quoted] = quoted
    return found


def _capitals_count(text: Text) -> bool:
    """Capitals tell names from other words: not in a headline, where grammar has them too, nor where all is shouted."""
    words = [token for token in text.tokens if token.kind == WORD and not token.first]
    small = any(token.surface.islower() and len(token.surface) > 1 for token in words)
    return small and not any(token.surface[0].isupper() and _is_plain(token) for token in words)


def _is_plain(token: Token) -> bool:
    return token.text in english.FUNCTION and len(token.text) > 1 and token.text not in names.NOT_NAMES


def _is_capital(token: Token) -> bool:
    """A word with a capital inside a sentence, or an acronym anywhere."""
    if token.kind != WORD or not token.surface[:1].isupper():
        return False
    if token.text in names.NOT_NAMES or token.text in dates.WORDS or token.text in english.FUNCTION:
        return False
    return not token.first or (len(token.text) > 1 and token.surface.isupper())


def _is_foreign(token: Token, script: str) -> bool:
    """A word in another script than the text around it: "Vue" among Chinese, "你好" among English."""
    if script == "han":
        return token.kind == WORD and token.text not in names.NOT_NAMES and len(token.text) > 1
    return script == "latin" and token.kind == HAN


def _occurs(word: str, text: Text) -> bool:
    """It is in the text in small letters, as its plural, or spelled out: SDK, software development kit."""
    if word in text.words or stem(word) in text.stems:
        return True
    if (not word.isascii() or " " in word) and word in text.surface.casefold():
        return True
    initials = 2 <= len(word) <= _MOST_INITIALS and word.isalpha() and word not in names.NAMES
    return initials and word in text.once(_initials)


def _initials(text: Text) -> str:
    return "".join(token.text[:1] for token in text.tokens if token.kind == WORD)
