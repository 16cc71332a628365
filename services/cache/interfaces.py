"""What the cache needs from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from services.cache.core.semantic.kinds import Kind

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


class ApproximateIndex(Protocol):
    """Finds rows of a partition that are near a vector without reading all of them.

    It gives candidates and no scores: who asks scores them by their whole vectors. `add` and `nearest` are called by one thread
    at a time; `remove` by any, at any time.
    """

    @property
    def kind(self) -> Kind:
        """What it is."""
        ...

    @property
    def size_bytes(self) -> int:
        """What it takes beside the vectors themselves."""
        ...

    @property
    def worn(self) -> bool:
        """It was changed so much that another one should be built in its place."""
        ...

    @property
    def changes(self) -> int:
        """Rows that came and rows that went, ever."""
        ...

    def labels(self) -> Slots:
        """The rows in the order in which they came, −1 for one that went. A copy."""
        ...

    def write(self, put: Callable[[bytes], object]) -> None:
        """Gives itself away piece by piece; not while it is added to."""
        ...

    def add(self, slots: Slots, vectors: Vectors) -> None:
        """Makes rows findable; one that was there already as it is now."""
        ...

    def remove(self, slot: int) -> None:
        """A row is not found any more; nothing for one that is not here."""
        ...

    def nearest(self, vectors: Vectors, most: int) -> list[Slots]:
        """For each of the vectors some rows, at least `most` where there are so many, in no order."""
        ...


class IndexBuilder(Protocol):
    """Makes indexes, in whatever thread it is called."""

    def __call__(
        self, kind: Kind, slots: Slots, rows: Callable[[Slots], Vectors], stopped: Callable[[], bool]
    ) -> ApproximateIndex | None:
        """An index of `slots`, which `rows` reads; None when it was stopped. Takes minutes for a million."""
        ...


class IndexReader(Protocol):
    """Makes an index from what `ApproximateIndex.write` gave."""

    def __call__(self, kind: Kind, get: Callable[[int], bytes], slots: Slots) -> ApproximateIndex:
        """`get` gives the next bytes, at most so many; `slots` is as `labels` gave it. Raises RuntimeError or ValueError."""
        ...
