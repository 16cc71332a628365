"""Rule 12: the same words and one or two more may be a narrower question."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.difference import difference
from services.cache.core.vetoes.finding import Finding, doubt
from services.cache.core.vetoes.text import Text


class Insertion:
    """Doubts where one text says all that the other says, and more."""

    name: Final = "insertion"

    def judge(self, asked: Text, stored: Text) -> Finding | None:
        """Content words only: "please tell me" adds nothing."""
        here, there = difference(asked, stored).content
        return doubt(self.name, here, there) if bool(here) != bool(there) else None
