"""What the cache needs from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
# float32[n, d], a vector a row.
Vectors = NDArray[np.float32]
# int64[n]: rows of a partition.
Slots = NDArray[np.int64]


class EncoderFailed(Exception):
    """An encoder gave nothing that can be used. Says why, without the texts."""


class Encoder(Protocol):
    """Turns texts into vectors whose cosine says how alike they are."""

    @property
    def name(self) -> str:
        """Model and revision. Vectors of two names are never compared."""
        ...

    async def encode(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """A vector for each text, of any length; None for a text that it could not read whole. Raises EncoderFailed."""
        ...

    async def close(self) -> None:
        """Releases what it holds."""
        ...
