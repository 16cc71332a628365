"""Rule 2: the same numbers, in the same units."""

from __future__ import annotations

from collections import Counter
from typing import Final

from services.cache.core.vetoes.finding import Finding, refuse
from services.cache.core.vetoes.quantities import Quantity
from services.cache.core.vetoes.tables import numbers
from services.cache.core.vetoes.text import Text


class Numbers:
    """Refuses where the numbers differ, words and units folded: "three" is 3, 1,000 is 1000, 60 min is 1 h."""

    name: Final = "numbers"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Compares both as multisets; a number without a unit equals the same number with one."""
        if asked.quantities == stored.quantities:
            return None
        here, there = Counter(asked.quantities), Counter(stored.quantities)
        only_here, only_there = list((here - there).elements()), list((there - here).elements())
        for one in tuple(only_here):
            other = next((each for each in only_there if _equal(one, each)), None)
            if other is not None:
                only_here.remove(one)
                only_there.remove(other)
        # "one" and "first" count only against another number.
        if all(_is_idle(each) for each in only_here + only_there):
            return None
        return refuse(self.name, _shown(only_here), _shown(only_there))


def _equal(one: Quantity, other: Quantity) -> bool:
    if one.value == other.value and one.dimension == other.dimension:
        return True
    return one.bare == other.bare and (
        "" in (one.dimension, other.dimension) or _may_be(one, other) or _may_be(other, one)
    )


def _may_be(one: Quantity, other: Quantity) -> bool:
    """¥ is either of two currencies, a pound is money or weight."""
    return other.dimension in numbers.AMBIGUOUS.get(one.dimension, ())


def _is_idle(quantity: Quantity) -> bool:
    return quantity.weak or (quantity.dimension == "ordinal" and quantity.bare == "1")


def _shown(found: list[Quantity]) -> list[str]:
    return [f"{each.bare} {each.dimension}".strip() for each in found]
