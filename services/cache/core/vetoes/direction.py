"""Rule 8: what goes from one thing to another goes the same way."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.finding import Finding, refuse
from services.cache.core.vetoes.stem import stem
from services.cache.core.vetoes.tables import chinese, english, order
from services.cache.core.vetoes.text import Text
from services.cache.core.vetoes.tokens import HAN, SIGN, Token

# "from my current account to …": so many words may name an end.
_MOST_WORDS: Final = 4
# "replace A with B", "leave A for B".
_FOR: Final = frozenset(["leave", "leaving", "swap", "swapping", "trade", "trading", "exchange", "exchanging"])
_WITH: Final = frozenset(["replace", "replacing", "substitute", "substituting"])

Way = tuple[frozenset[str], frozenset[str]]


class Direction:
    """Refuses where both texts have a from and a to, and they are not the same."""

    name: Final = "direction"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """An end may be named by more words here than there; ends without a common word differ."""
        here, there = way(asked), way(stored)
        if here is None or there is None:
            return None
        for ours, theirs in zip(here, there, strict=True):
            if ours and theirs and ours.isdisjoint(theirs):
                return refuse(self.name, _shown(here), _shown(there))
        return None


def way(text: Text) -> Way | None:
    """Words of the start and of the end, without grammar; None where it says neither."""
    return text.once(_way)


def _way(text: Text) -> Way | None:
    return _english(text.tokens) or _chinese(text.tokens)


def _english(tokens: tuple[Token, ...]) -> Way | None:
    words = [token.text for token in tokens]
    start = words.index("from") if "from" in words else -1
    end = next((i for i, word in enumerate(words) if word in ("to", "into") and i > start), -1)
    if start >= 0 and end > start:
        return _ahead(tokens, start + 1), _ahead(tokens, end + 1)
    if start > 0 and (end := next((i for i, word in enumerate(words) if word in ("to", "into")), -1)) >= 0:
        return _ahead(tokens, start + 1), _ahead(tokens, end + 1)
    if order.DIRECTED.isdisjoint(words) and _FOR.isdisjoint(words) and _WITH.isdisjoint(words):
        return None
    for at, word in enumerate(words):
        verbs = (
            order.DIRECTED
            if word in ("to", "into", "in")
            else _FOR
            if word == "for"
            else _WITH
            if word == "with"
            else ()
        )
        verb = next((i for i in range(at) if words[i] in verbs), -1)
        if verb >= 0:
            before, behind = _ahead(tokens, verb + 1), _ahead(tokens, at + 1)
            if before and behind:
                return before, behind
    return None


def _ahead(tokens: tuple[Token, ...], at: int) -> frozenset[str]:
    """The content words from here on, up to the next word of grammar behind one."""
    found: set[str] = set()
    for token in tokens[at : at + 2 * _MOST_WORDS]:
        if token.text in english.FUNCTION or token.kind == SIGN:
            if found:
                break
        else:
            found.add(stem(token.text))
            if len(found) == _MOST_WORDS:
                break
    return frozenset(found)


def _chinese(tokens: tuple[Token, ...]) -> Way | None:
    for at, token in enumerate(tokens):
        if token.kind == HAN and token.text in order.HAN_TO and 0 < at < len(tokens) - 1:
            start = next((i for i in range(at - 1, -1, -1) if tokens[i].text in order.HAN_FROM), at - 1 - _MOST_WORDS)
            before = {t.text for t in tokens[max(start + 1, 0) : at] if t.text not in chinese.FUNCTION}
            behind: set[str] = set()
            for after in tokens[at + 1 : at + 1 + _MOST_WORDS]:
                if after.text in chinese.FUNCTION or after.text in order.HAN_TO:
                    break
                behind.add(after.text)
            if before and behind:
                return frozenset(before), frozenset(behind)
    return None


def _shown(found: Way) -> str:
    return f"{' '.join(sorted(found[0]))} → {' '.join(sorted(found[1]))}"
