"""Rule 7: the same words in the same order, unless the order says nothing."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.finding import Finding, doubt, refuse
from services.cache.core.vetoes.stem import stem
from services.cache.core.vetoes.tables import order
from services.cache.core.vetoes.text import Text


class Order:
    """Refuses equal words in another order: "Is A using B" is not "Is B using A". An active and a passive sentence of
    the same words are the same when, and only when, what stands around the verb has changed places.
    """

    name: Final = "order"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Looks only at texts of the same content words."""
        if asked.sorted_content != stored.sorted_content:
            return None
        here, there = asked.once(passive_verb), stored.once(passive_verb)
        if bool(here) != bool(there):
            verb = here or there
            same = [w for w in asked.content if w != verb] == [w for w in stored.content if w != verb]
            return refuse(self.name, asked.content, stored.content) if same else None
        if asked.content == stored.content:
            return None
        return _moved(asked, stored)


def passive_verb(text: Text) -> str:
    """The verb of a passive sentence ("is … seen by B"); empty in an active one."""
    tokens = text.tokens
    for i, token in enumerate(tokens):
        if token.text == "by" and 1 < i < len(tokens) - 1 and not tokens[i - 1].text.endswith("ing"):
            before = [each.text for each in tokens[:i]]
            if not order.BE.isdisjoint(before) and before[-1] not in order.BE:
                return stem(before[-1])
    return ""


def _moved(asked: Text, stored: Text) -> Finding | None:
    """Two parts that changed places are another question; one part that moved may be ("the guest password", "the
    password for guests"), and is when something is compared or goes somewhere ("eat before a walk").
    """
    if not _SYMMETRIC.isdisjoint(asked.stems):
        return None
    first = next(i for i, (a, b) in enumerate(zip(asked.content, stored.content, strict=True)) if a != b)
    last = len(asked.content) - next(
        i for i, (a, b) in enumerate(zip(reversed(asked.content), reversed(stored.content), strict=True)) if a != b
    )
    if _joined(asked, first, last) or _joined(stored, first, last):
        return None
    here, there = asked.content[first:last], stored.content[first:last]
    cut = next((i for i in range(1, len(here)) if here[i:] + here[:i] == there), 0)
    if cut and any(_follows(asked, word) and _follows(stored, word) for word in (here[cut], here[0])):
        return None
    ordered = not cut or not (order.ORDERING.isdisjoint(asked.words) and order.ORDERING.isdisjoint(stored.words))
    return (refuse if ordered else doubt)(Order.name, here, there)


def _joined(text: Text, first: int, last: int) -> bool:
    """Between the words that moved stands an "and", an "or" or the like."""
    at = 0
    for token in text.tokens:
        word = stem(token.text)
        if first < at < last and token.text in order.JOINS:
            return True
        if at < len(text.content) and text.content[at] in (word, token.text):
            at += 1
    return False


def _follows(text: Text, word: str) -> bool:
    """The word stands behind a preposition ("in", "when", "for"): its part may stand in front or at the end."""
    fronted = False
    for token in text.tokens:
        if word in (token.text, stem(token.text)):
            return fronted
        if token.text in order.FRONTED:
            fronted = True
        elif stem(token.text) in text.bag or token.text in text.bag:
            fronted = False
    return False


_SYMMETRIC: Final = frozenset(stem(word) for word in order.SYMMETRIC)
