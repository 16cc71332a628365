"""Rule 3: the same days, months and parts of the day, the same side of an event, the same tense."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.finding import Finding, doubt, refuse
from services.cache.core.vetoes.tables import dates
from services.cache.core.vetoes.text import Text

_NONE: Final[frozenset[str]] = frozenset()
_TENSES: Final = (("past", dates.PAST), ("present", dates.PRESENT), ("future", dates.FUTURE))


class Dates:
    """Refuses where a slot has one value here and another there; doubts where only one text has the slot at all."""

    name: Final = "dates"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Slot by slot, then the tense."""
        found: Finding | None = None
        for slot in sorted(asked.times.keys() | stored.times.keys()) if asked.times != stored.times else ():
            here, there = asked.times.get(slot, _NONE), stored.times.get(slot, _NONE)
            only_here, only_there = here - there, there - here
            alone = slot in dates.ALONE and any((slot, value) not in dates.NOW for value in only_here | only_there)
            if (only_here and only_there) or alone:
                return refuse(self.name, only_here, only_there)
            if slot not in dates.ALONE and only_here | only_there:
                found = found or doubt(self.name, only_here, only_there)
        return self._tense(asked, stored) or found

    def _tense(self, asked: Text, stored: Text) -> Finding | None:
        one, other = tense(asked), tense(stored)
        if not one or not other or one == other:
            return None
        # "My card was refused" and "why is my card refused" are one case; with the same words otherwise they are two.
        same = asked.bag - _IDLE == stored.bag - _IDLE
        return (refuse if same else doubt)(self.name, one, other)


def tense(text: Text) -> str:
    """past, present or future; empty where it has none, or several."""
    found = [name for name, words in _TENSES if not words.isdisjoint(text.words)]
    if "past" in found and {"used", "use"} & text.words:  # "did she use to"
        return "past"
    return found[0] if len(found) == 1 else ""


_IDLE: Final = frozenset({"us", "use"}) | dates.PAST | dates.PRESENT | dates.FUTURE
