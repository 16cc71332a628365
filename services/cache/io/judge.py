"""Whether two answers say the same."""

from __future__ import annotations

from typing import Final

from services.cache.core.vetoes.chain import Chain
from services.cache.core.vetoes.text import Text
from services.cache.io.encoding import Encoding

# Longer answers say many things: one vector tells little of them.
_MOST_CHARS: Final = 2000


class Judge:
    """Compares by words, then by rules and by likeness. Its own errors are outside of every bound that is kept with it."""

    def __init__(self, encoding: Encoding, alike: float) -> None:
        self._encoding = encoding
        self._alike = alike
        self._chain = Chain()

    async def same(self, fresh: str, stored: str) -> bool | None:
        """None where it can't say."""
        if _folded(fresh) == _folded(stored):
            return True
        if max(len(fresh), len(stored)) > _MOST_CHARS:
            return None
        if self._chain.judge(Text(fresh), Text(stored)).refusal is not None:
            return False
        one, other = await self._encoding.encode(fresh), await self._encoding.encode(stored)
        if one is None or other is None:
            return None
        return float(one @ other) >= self._alike


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
