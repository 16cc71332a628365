"""Texts into vectors that may be compared: bounded, in batches, checked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np
import structlog

from services.cache.interfaces import Encoder, EncoderFailed, Vector
from streamway.runtime.tasks import TaskScope

_log = structlog.get_logger("cache")

# Texts that no useful encoder finds alike. One that does gives the same vector for everything.
_CANARIES: Final = ("How do I reset my password?", "The boat left at dawn.", "今天的午饭是面条。")
_ALIKE: Final = 0.9999
_CANARY_S: Final = 60.0
_MOST_BATCH: Final = 32


class Encoding:
    """Collects texts while the encoder works, and gives it all of them next: no text waits for a batch to fill.

    More than `most_waiting` texts are not taken: the encoder is slower than what comes. An encoder whose canary died is not
    asked until it lives again. `seconds_a_text` is what the last batch took, for each of its texts.
    """

    def __init__(self, encoder: Encoder, scope: TaskScope, *, most_waiting: int) -> None:
        self._encoder = encoder
        self._most_waiting = most_waiting
        self._waiting: list[tuple[str, asyncio.Future[Vector | None]]] = []
        self._wake = asyncio.Event()
        self._dims = 0
        self.seconds_a_text = 0.0
        self.refused = ""
        scope.spawn(self._run(), "encode")
        scope.spawn(self._watch(), "encoder-canary")

    @property
    def name(self) -> str:
        """Of the encoder."""
        return self._encoder.name

    @property
    def dims(self) -> int:
        """Length of its vectors; 0 before the first."""
        return self._dims

    async def encode(self, text: str) -> Vector | None:
        """A vector of unit length; None where there is none in time, or none that can be used."""
        if self.refused or len(self._waiting) >= self._most_waiting:
            return None
        future: asyncio.Future[Vector | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, future))
        self._wake.set()
        return await future

    async def check(self) -> None:
        """Looks whether the encoder tells different texts apart; says so in `refused` where it does not."""
        trouble = await self._trouble()
        if trouble != self.refused:
            (_log.warning if trouble else _log.info)("encoder_checked", trouble=trouble)
        self.refused = trouble

    async def _trouble(self) -> str:
        try:
            vectors = [self._checked(vector) for vector in await self._encoder.encode(_CANARIES)]
        except EncoderFailed as problem:
            return str(problem)
        good = [vector for vector in vectors if vector is not None]
        if len(good) != len(_CANARIES):
            return "it gave no vector, or one that is no direction"
        pairs = [(a, b) for i, a in enumerate(good) for b in good[i + 1 :]]
        if any(float(a @ b) > _ALIKE for a, b in pairs):
            return "it gives one vector for different texts"
        return ""

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CANARY_S)
            await self.check()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:_MOST_BATCH], self._waiting[_MOST_BATCH:]
                # Who gave up meanwhile need not be encoded.
                batch = [(text, future) for text, future in batch if not future.done()]
                began = asyncio.get_running_loop().time()
                vectors = await self._vectors([text for text, _ in batch])
                if batch:
                    self.seconds_a_text = (asyncio.get_running_loop().time() - began) / len(batch)
                for (_, future), vector in zip(batch, vectors, strict=True):
                    if not future.done():
                        future.set_result(vector)

    async def _vectors(self, texts: list[str]) -> Sequence[Vector | None]:
        if not texts:
            return []
        try:
            return [self._checked(vector) for vector in await self._encoder.encode(texts)]
        except EncoderFailed as problem:
            _log.warning("texts_not_encoded", texts=len(texts), problem=str(problem))
            return [None] * len(texts)

    def _checked(self, vector: Vector | None) -> Vector | None:
        """Of unit length, or None: NaN, zero, and another dimension than the first one are no directions to compare."""
        if vector is None or vector.ndim != 1:
            return None
        self._dims = self._dims or len(vector)
        length = float(np.linalg.norm(vector)) if len(vector) == self._dims else 0.0
        return vector / np.float32(length) if np.isfinite(length) and length > 0 else None
