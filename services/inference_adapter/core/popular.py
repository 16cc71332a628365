"""Which system prompts are asked for most: what one worker has counted, and how the counts of all are put together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

# Counts are kept by the window they fall into; one and the one before are looked at.
WINDOW_S: Final = 600
# A prompt that was asked for once only is nobody's system prompt, or nobody's yet.
_LEAST: Final = 2

Named = tuple[str, str, bytes]
"""Tenant, model and context."""


@dataclass(slots=True)
class _Count:
    untold: int = 0
    seen: int = 0


class Popular:
    """Counts at most `most` contexts; the one that was asked for longest ago makes room."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._counts: OrderedDict[Named, _Count] = OrderedDict()

    def seen(self, tenant: str, model: str, context: bytes) -> None:
        """It was asked for."""
        name = (tenant, model, context)
        count = self._counts.pop(name, None) or _Count()
        count.untold += 1
        count.seen += 1
        self._counts[name] = count
        if len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def take(self) -> dict[Named, int]:
        """What is to be added to the counts of all."""
        told = {name: count.untold for name, count in self._counts.items() if count.untold and count.seen >= _LEAST}
        for name in told:
            self._counts[name].untold = 0
        return told


def windows(unix_s: float) -> tuple[int, int]:
    """The window of a moment, and the one before."""
    now = int(unix_s) // WINDOW_S
    return now, now - 1


def hottest(counts: Iterable[tuple[str, Mapping[bytes, float]]], most: int) -> list[tuple[str, bytes]]:
    """Tenants and contexts, most asked for first, out of what the windows hold."""
    sums: dict[tuple[str, bytes], float] = {}
    for tenant, held in counts:
        for context, count in held.items():
            sums[tenant, context] = sums.get((tenant, context), 0.0) + count
    return sorted(sums, key=lambda name: (-sums[name], name))[:most]
