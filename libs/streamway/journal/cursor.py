"""Cursors: where a reader stands, as clients carry it.

    1048999-17      epoch 1048999 wrote position 17, and that is the last one the reader has
    0-0             the reader has nothing

A position alone would not do: after the store lost its newest second, two texts can have had the same position.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from streamway.errors import Malformed

_CURSOR = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")
_MOST: Final = 2**64 - 1


class Cursor(NamedTuple):
    """Ordered as the store orders entry ids."""

    epoch: int
    position: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.position}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Reads the one spelling that `str` of a cursor writes. Raises Malformed for everything else."""
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise Malformed("the cursor", "it must be one this service gave, 'epoch-position'")
        epoch, position = int(found[1]), int(found[2])
        if epoch > _MOST or position > _MOST or (position == 0 and epoch != 0):
            raise Malformed("the cursor", "no event has this epoch and position")
        return cls(epoch, position)


START: Final = Cursor(0, 0)
