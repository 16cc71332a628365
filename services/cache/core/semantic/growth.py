"""Which partitions are being filled just now, as at a start: their index would be built again a moment later."""

from __future__ import annotations

from typing import Final

# A partition that grew by a greater share since the last look is being filled.
_GROWING: Final = 0.02
# Looks for which one that grows is waited for.
_PATIENCE: Final = 30


class Growth:
    """Told what partitions hold, one look after the other."""

    def __init__(self) -> None:
        # Vectors at the last look, and looks at which it was growing.
        self._seen: dict[bytes, tuple[int, int]] = {}

    def settled(self, partition: bytes, count: int) -> bool:
        """A look: it grows slowly, or has grown for so long that it is not waited for."""
        before, looks = self._seen.get(partition, (0, 0))
        growing = count > (1 + _GROWING) * before and looks < _PATIENCE
        self._seen[partition] = (count, looks + 1 if growing else 0)
        return not growing

    def gone(self, large: set[bytes]) -> list[bytes]:
        """Forgets all but these; gives what it forgot."""
        gone = [partition for partition in self._seen if partition not in large]
        for partition in gone:
            del self._seen[partition]
        return gone
