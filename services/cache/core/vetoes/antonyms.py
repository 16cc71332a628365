"""Rule 5: no word in place of its opposite."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.difference import difference
from services.cache.core.vetoes.finding import Finding, doubt, refuse
from services.cache.core.vetoes.text import Text


class Antonyms:
    """Refuses "enable" for "disable", unless something else turns it round once more ("less humble", "more proud")."""

    name: Final = "antonyms"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """An odd number of turns is the opposite; an even one may be the same, said otherwise."""
        between = difference(asked, stored)
        found = between.opposites
        if not found:
            return None
        odd = (len(found) + between.turns) % 2 == 1
        return (refuse if odd else doubt)(self.name, [a for a, _ in found], [b for _, b in found])
