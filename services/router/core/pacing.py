"""How fast a stored answer comes again, where its pieces are asked for as they were made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from streamway.v1 import common_pb2

# Longer waits of the engine are not lived through again.
_LONGEST_S: Final = 0.02
# An answer of very many pieces has an end: what is left then comes at once.
_MOST_S: Final = 30.0


def gaps(pieces: Sequence[common_pb2.Event]) -> Iterator[float]:
    """Seconds to wait before each piece: as long as it took to come, within bounds. 0 before the first."""
    before, waited = None, 0.0
    for piece in pieces:
        gap_s = 0.0 if before is None else min(_LONGEST_S, max(0.0, (piece.offset_ms - before) / 1000))
        if waited + gap_s > _MOST_S:
            gap_s = 0.0
        before, waited = piece.offset_ms, waited + gap_s
        yield gap_s
