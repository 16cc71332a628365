"""Rule 5b: no word in place of another of its kind: breakfast for dinner, 红色 for 蓝色, kilometres for miles."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.difference import difference
from services.cache.core.vetoes.finding import Finding, refuse
from services.cache.core.vetoes.stem import stem
from services.cache.core.vetoes.tables import contrasts
from services.cache.core.vetoes.text import Text


class Contrasts:
    """Refuses where both texts have a word of a group, and not the same."""

    name: Final = "contrasts"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Words of the same meaning count as one; a word that both have belongs to the frame and says nothing."""
        between = difference(asked, stored)
        here, there = between.stems_here, between.stems_there
        if _MEMBERS.keys().isdisjoint(here) or _MEMBERS.keys().isdisjoint(there):
            return None
        ours, theirs = _groups(here), _groups(there)
        for group in ours.keys() & theirs.keys():
            if ours[group].isdisjoint(theirs[group]):
                return refuse(self.name, ours[group], theirs[group])
        return None


def _groups(words: frozenset[str]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for word in words:
        for group, member in _MEMBERS.get(word, {}).items():
            found.setdefault(group, set()).add(member)
    return found


_MEMBERS: Final = {stem(word): groups for word, groups in contrasts.MEMBERS.items()}
